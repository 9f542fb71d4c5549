"""Journal of mode mps: the compute mode that each GPU had before, to be put back.

It is forced to disk before the mode is changed, so that a crash in between is found. A reboot
resets compute modes, so what was written under another boot is void.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from agent.driver.driver import ComputeMode
from agent.durable_files import durable_content, replace_durably

MOST_BYTES: Final = 64 * 1024
_UUID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
Before = Mapping[str, ComputeMode]  # by the UUID of a GPU
log = structlog.get_logger(__name__)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The journal's content."""

    boot: str
    before: dict[str, ComputeMode]


def document_of(before: Before, boot: str) -> bytes:
    """Return the journal that says *before* under *boot*."""
    return msgspec.json.encode(_Document(boot=boot, before=dict(sorted(before.items()))))


def parse_before(text: bytes, boot: str) -> Before | None:
    """Return what a journal says under *boot*; ``None`` if it is damaged.

    Where it is damaged, no compute mode can be put back to what it was; it becomes DEFAULT.
    """
    if not text:
        return {}
    if len(text) > MOST_BYTES:
        return None
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (ValueError, RecursionError):  # of msgspec, and of text that is no UTF-8
        return None
    if any(_UUID.fullmatch(gpu) is None for gpu in document.before):
        return None
    return document.before if document.boot == boot else {}


class MpsJournal:
    """The compute modes to put back, in *path*, since *boot*; ``before`` is the present content."""

    def __init__(self, path: Path, *, boot: str, sync: Callable[[int], object] = os.fsync) -> None:
        """Read the file; raises OSError if it exists and cannot be read."""
        self._path = path
        self._boot = boot
        self._sync = sync
        before = parse_before(durable_content(path), boot)
        if before is None:
            log.warning("journal of mode mps is damaged", path=str(path))
        self.damaged = before is None
        self.before: Before = before or {}

    def record(self, gpu: str, before: ComputeMode) -> None:
        """Put on disk what *gpu* had; raises OSError, and then the mode must not be changed."""
        self._write({**self.before, gpu: before})

    def forget(self, gpu: str) -> None:
        """Take *gpu* out, whose mode was put back; raises OSError."""
        self._write({name: mode for name, mode in self.before.items() if name != gpu})

    def _write(self, before: Before) -> None:
        replace_durably(self._path, document_of(before, self._boot), sync=self._sync)
        self.before = before
