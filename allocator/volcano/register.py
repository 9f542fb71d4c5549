"""Node annotations of the Volcano vGPU protocol: the GPU register and the old handshake.

The register has one record per GPU, ``uuid,count,memory,type,health,mode:``, five fields until
v1.9.4 of the plugin and six since. Unlike upstream, a malformed record does not spoil the others,
and each GPU has its own mode, not that of the last record.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from allocator.catalog.boards import board_named
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Problem
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.model.untrusted import quote

REGISTER_ANNOTATION: Final = "volcano.sh/node-vgpu-register"
HANDSHAKE_ANNOTATION: Final = "volcano.sh/node-vgpu-handshake"
_MAX_TEXT: Final = 256 * 1024  # all annotations of an object together
_MAX_RECORDS: Final = 256
_MAX_NUMBER: Final = 2**31 - 1
_FIELDS: Final = (5, 6)
_TYPE_PREFIX: Final = "NVIDIA-"
_UUID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_TYPE: Final = re.compile(r"[ -~]{1,128}", re.ASCII)
_BOOLEANS: Final = {  # those of Go's strconv.ParseBool
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_UNANSWERED_AFTER: Final = timedelta(seconds=60)
_PROBE_FORMAT: Final = "%Y.%m.%d %H:%M:%S"
_REPORT_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{1,9})?(?: ([+-]\d{4}))?\b", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRecord:
    """One GPU of the register."""

    index: int  # place in the annotation, which upstream takes for the GPU's index
    uuid: str
    count: int  # shares; 0: takes no pods
    memory: int  # in units of the site's gpuMemoryFactor MiB
    product: str
    healthy: bool = True
    mode: Mode = Mode.HAMI_CORE


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegister:
    """The records that could be read, and what was wrong with the annotation."""

    records: tuple[RegisterRecord, ...]
    problems: tuple[Problem, ...] = ()


def decode_register(text: str) -> NodeRegister:
    """Decode the annotation; the last colon is optional, and empty records only add to indexes."""
    if len(text) > _MAX_TEXT:
        problem = _problem(REGISTER_ANNOTATION, f"{len(text)} characters", f"at most {_MAX_TEXT}")
        return NodeRegister(records=(), problems=(problem,))
    parts = text.removesuffix(":").split(":") if text else []
    records: dict[str, RegisterRecord] = {}
    problems: list[Problem] = []
    for index, part in enumerate(parts[:_MAX_RECORDS]):
        if not part.strip():
            continue
        record, record_problems = _decode_record(index, part)
        problems.extend(record_problems)
        if record is not None and record.uuid in records:
            problems.append(_entry_problem(index, f"{quote(record.uuid)} twice", "each GPU once"))
        elif record is not None:
            records[record.uuid] = record
    if len(parts) > _MAX_RECORDS:
        problems.append(
            _problem(REGISTER_ANNOTATION, f"{len(parts)} records", f"at most {_MAX_RECORDS}")
        )
    return NodeRegister(records=tuple(records.values()), problems=tuple(problems))


def _decode_record(index: int, part: str) -> tuple[RegisterRecord | None, list[Problem]]:
    fields = part.split(",")
    if len(fields) not in _FIELDS:
        accepted = "5 or 6 fields: uuid,count,memory,type,health[,mode]"
        return None, [_entry_problem(index, f"{len(fields)} fields in {quote(part)}", accepted)]
    uuid, count, memory, product, health = fields[:5]
    fatal = [
        _entry_problem(index, f"{name} {quote(value)}", accepted)
        for name, value, accepted, good in (
            ("uuid", uuid, "letters, digits and dashes", _UUID.fullmatch(uuid)),
            ("count", count, f"0 to {_MAX_NUMBER}", count == "0" or _positive(count)),
            ("memory", memory, f"1 to {_MAX_NUMBER}", _positive(memory)),
            ("type", product, "a product name", _TYPE.fullmatch(product)),
        )
        if not good
    ]
    if fatal:
        return None, fatal
    mode, tolerated = _mode(index, fields[5] if len(fields) > _FIELDS[0] else Mode.HAMI_CORE)
    if health not in _BOOLEANS:
        tolerated.append(
            _entry_problem(index, f"health {quote(health)}, read as false", "true or false")
        )
    record = RegisterRecord(
        index=index,
        uuid=uuid,
        count=_positive(count),
        memory=_positive(memory),
        product=product.removeprefix(_TYPE_PREFIX),
        healthy=_BOOLEANS.get(health, False),
        mode=mode,
    )
    return record, tolerated


def _mode(index: int, text: str) -> tuple[Mode, list[Problem]]:
    if text in (Mode.MIG, Mode.HAMI_CORE, Mode.MPS):
        return Mode(text), []
    what = f"mode {quote(text)}, read as {Mode.HAMI_CORE}"
    return Mode.HAMI_CORE, [_entry_problem(index, what, f"{Mode.HAMI_CORE} or {Mode.MIG}")]


def _positive(text: str) -> int:
    """Return a decimal from 1 to 2^31 - 1, or 0 for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_NUMBER))):
        return 0
    return int(text) if int(text) <= _MAX_NUMBER else 0


def _entry_problem(index: int, what: str, accepted: str) -> Problem:
    return _problem(f"{REGISTER_ANNOTATION}[{index}]", what, accepted)


def _problem(path: str, what: str, accepted: str) -> Problem:
    return Problem(path=path, what=what, accepted=accepted)


def encode_register(gpus: Iterable[Gpu], *, factor: int = 1) -> str:
    """Return the annotation with six fields per GPU, as upstream writes it byte for byte."""
    return "".join(
        f"{gpu.uuid},{gpu.slots},{gpu.memory // factor},{_TYPE_PREFIX}{gpu.model},"
        f"{str(gpu.healthy).lower()},{gpu.mode}:"
        for gpu in gpus
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNode:
    """A node as its register annotation describes it, without grants."""

    node: Node
    problems: tuple[Problem, ...] = ()


def node_from_register(name: str, text: str, *, factor: int = 1) -> RegisteredNode:
    """Build a node from its annotation; *factor* is the site's gpuMemoryFactor.

    A GPU in MIG mode whose model the catalogue lacks gets no board, so that no instance can be
    placed on it; upstream treats it, or the whole node, as hami-core. A register with defects may
    lack GPUs, so its node is not fresh: no pod is refused because of it.
    """
    register = decode_register(text)
    gpus = tuple(_gpu(record, factor) for record in register.records)
    unknown = tuple(
        _entry_problem(
            gpu.index,
            f"{gpu.model} is in mode mig but not in the catalogue",
            "a model with known MIG profiles, or mode hami-core",
        )
        for gpu in gpus
        if gpu.mode is Mode.MIG and gpu.board is None
    )
    node = Node(name=name, gpus=gpus, fresh=not register.problems)
    return RegisteredNode(node=node, problems=register.problems + unknown)


def _gpu(record: RegisterRecord, factor: int) -> Gpu:
    return Gpu(
        uuid=record.uuid,
        index=record.index,
        model=record.product,
        memory=MiB(record.memory * factor),
        mode=record.mode,
        slots=record.count,
        board=board_named(record.product) if record.mode is Mode.MIG else None,
        healthy=record.healthy,
        deviceshare=True,
    )


class HandshakePhase(StrEnum):
    """The first word of a handshake annotation."""

    REPORTED = "Reported"  # written by the plugin: it is alive
    REQUESTING = "Requesting"  # written by vc-scheduler: the plugin is to report
    DELETED = "Deleted"  # written by vc-scheduler: the plugin did not report


@dataclass(frozen=True, slots=True)
class Handshake:
    """A handshake annotation."""

    phase: HandshakePhase
    at: datetime | None  # when it was written; None: unreadable

    def is_unanswered(self, now: datetime) -> bool:
        """Say whether the plugin is gone: deleted, or probed for more than a minute."""
        if self.phase is HandshakePhase.REQUESTING and self.at is not None:
            return now - self.at > _UNANSWERED_AFTER
        return self.phase is HandshakePhase.DELETED


def decode_handshake(text: str) -> Handshake | None:
    """Read the annotation; ``None`` where it is none of the three forms.

    Probes carry no zone: upstream writes local time and reads UTC, and so do we.
    """
    for phase in HandshakePhase:
        if text.startswith(phase):
            rest = text[len(phase) :]
            read = _reported_at if phase is HandshakePhase.REPORTED else _probe_time
            return Handshake(phase, read(rest))
    return None


def _reported_at(text: str) -> datetime | None:
    match = _REPORT_TIME.match(text.removeprefix(" "))
    if match is None:
        return None
    try:
        return datetime.strptime(f"{match[1]} {match[2] or '+0000'}", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return None


def _probe_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text.removeprefix("_"), _PROBE_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def encode_handshake(phase: HandshakePhase, now: datetime) -> str:
    """Return the annotation that says *phase* at *now*, which must be aware of its zone."""
    utc = now.astimezone(UTC)
    if phase is HandshakePhase.REPORTED:
        return f"{phase} {utc:%Y-%m-%d %H:%M:%S.%f}000 +0000 UTC"
    return f"{phase}_{utc:{_PROBE_FORMAT}}"
