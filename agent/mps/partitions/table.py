"""Partitions of one GPU: the commands of a daemon that was started with ``-S``, and its answers.

A partition is a number of chunks, each of some multiprocessors, that its clients have to
themselves. A client names one in a variable, and fails without it. The daemon calls a partition
``<UUID>/<name>``, where the name is of its own choosing. Its partitions end with it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.mps.commands import MpsAnswerError
from allocator.model.request import Stage
from allocator.model.untrusted import quote

LIST_PARTITIONS: Final = "lspart"
MOST_PARTITIONS: Final = 128  # of one GPU, which has room for tens of clients
_MOST_CHUNKS: Final = 100  # of one GPU; the largest has some twenty
_NAME: Final = re.compile(r"[A-Za-z0-9+/=_-]{1,128}")  # base64 of either alphabet
_FULL_NAME: Final = re.compile(r"GPU-[0-9a-fA-F-]{8,60}/([A-Za-z0-9+/=_-]{1,128})(?=[\s.]|$)")
_COLUMNS: Final = 7  # GPU, partition, free and used chunks, free and used SMs, clients
_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that a partition is made for."""

    uid: str  # of its pod
    container: str

    def __str__(self) -> str:
        """Return its key in the book of partitions."""
        return f"{self.uid}/{self.container}"

    @property
    def pod_prefix(self) -> str:
        """Return what the keys of all containers of its pod begin with."""
        return f"{self.uid}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPartition:
    """A partition that is, or is about to be, a container's."""

    chunks: int
    stage: Stage = Stage.APP  # when the container runs
    name: str = ""  # the daemon's; empty until it has answered


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPartition:
    """A partition as the daemon lists it."""

    chunks: int
    in_use: bool  # clients are in it


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTable:
    """All partitions of a GPU, by name, and its free chunks."""

    free: int
    used: int
    partitions: Mapping[str, ListedPartition]

    @property
    def chunks(self) -> int:
        """Return the chunks of the GPU."""
        return self.free + self.used


def add_partition(gpu: str, chunks: int) -> str:
    """Return the command that makes a partition."""
    return f"sm_partition add {gpu} {chunks}"


def remove_partition(gpu: str, name: str) -> str:
    """Return the command that removes a partition."""
    return f"sm_partition rm {gpu} {name}"


def partition_name(answer: str) -> str:
    """Return the name of the partition that was made, from the daemon's answer.

    It is alone in the answer, or within a sentence. Raises MpsAnswerError where there is not one.
    """
    names = _FULL_NAME.findall(answer)
    if len(names) != 1:
        raise MpsAnswerError(
            f"{quote(answer.strip())} as the partition that was made; expected <UUID>/<name>"
        )
    return str(names[0])


def partition_table(answer: str) -> PartitionTable:
    """Return the table that the daemon lists; raises MpsAnswerError.

    The row of the GPU has no name. Lines that begin with no GPU are headings.
    """
    total: tuple[int, int] | None = None
    partitions: dict[str, ListedPartition] = {}
    for line in answer.splitlines():
        words = line.split()
        if not words or not words[0].startswith("GPU-"):
            continue
        if len(words) != _COLUMNS:
            raise MpsAnswerError(f"{quote(line.strip())} in a list of partitions; expected 7 words")
        _, name, free, used, _, _, clients = words
        if name == _NONE:
            if total is not None:
                raise MpsAnswerError("two GPUs in a list of partitions; one is served")
            total = (_number(free), _number(used))
        elif _NAME.fullmatch(name) is None or name in partitions:
            raise MpsAnswerError(f"{quote(name)} in a list of partitions; a new name is expected")
        else:
            in_use = clients.lower() == "yes"
            partitions[name] = ListedPartition(chunks=_number(used), in_use=in_use)
    if total is None or not 0 < sum(total) <= _MOST_CHUNKS:
        raise MpsAnswerError("a list of partitions that does not say how many chunks the GPU has")
    if len(partitions) > MOST_PARTITIONS:
        raise MpsAnswerError(f"{len(partitions)} partitions; at most {MOST_PARTITIONS} are read")
    return PartitionTable(free=total[0], used=total[1], partitions=partitions)


def _number(word: str) -> int:
    if word.isascii() and word.isdigit() and len(word) <= len("100"):
        return int(word)
    raise MpsAnswerError(f"{quote(word)} in a list of partitions; a number of chunks is expected")
