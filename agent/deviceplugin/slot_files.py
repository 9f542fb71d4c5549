"""Slots on disk: what each slot gives to its container, and which pod held it last.

With CDI that is one document per slot in use, read by the container runtime. Without, it is the
slot's folder, whose files Allocate told the runtime to mount before anybody knew for whom: links
that are put in place before the container is made, to the library and the container's region,
or to nothing. If all GPUs are in MIG mode, no container needs them and Allocate names none.
Neither outlives its holder: a reassigned slot is empty until it is written again.
"""

import contextlib
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename
from typing import Final

import msgspec
import structlog

from agent.deviceplugin import cdi
from agent.deviceplugin.container_edits import ContainerEdits, HostMount, slot_mounts
from agent.node.slots import is_slot
from agent.share import Owner
from allocator.catalog.injection import LIBRARY_DIRECTORY

SLOTS_DIRECTORY: Final = "/usr/local/vgpu/slots"
_HOLDER: Final = "holder"
_WITHOUT_MOUNTS: Final = (
    "bare"  # an empty file: the container was told of no mounts, and never will be
)
_NO_TARGET: Final = "/dev/null"
# A runtime hears of a changed file a little later. Where one holder's document takes the place
# of another's, it must find none meanwhile, rather than the wrong one.
_NOTICE_SECONDS: Final = 0.05
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAllocation:
    """What Allocate answers for a slot: its CDI *device*, or the *mounts* of its folder."""

    device: str | None = None
    mounts: tuple[HostMount, ...] = ()


class _Holder(msgspec.Struct, frozen=True):
    uid: str


class SlotFiles:
    """The slots below *root*; documents go to the folder *cdi*, ``None`` where no runtime reads it.

    Calls touch small local files and block. One process at a time may own a node's slots.
    """

    def __init__(self, root: Path, *, cdi: Path | None) -> None:
        """Remember where the slots are; nothing is known of them before ``recover``."""
        self._folder = root / SLOTS_DIRECTORY.lstrip("/")
        self._cdi = cdi
        self.library = str(root / LIBRARY_DIRECTORY.lstrip("/"))
        self._holders: dict[str, str] = {}
        self._to_empty: set[tuple[str, str]] = set()
        self._holder_lock = threading.Lock()  # calls come from several threads

    @property
    def with_cdi(self) -> bool:
        """Say whether content reaches a container through CDI."""
        return self._cdi is not None

    @property
    def used_slots(self) -> frozenset[str]:
        """Return the slots that have a holder."""
        return frozenset(self._holders)

    def recover(self) -> None:
        """Make folders, read who holds what, and remove all documents; raises OSError.

        No document is needed again: before each start of a container it is written anew.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._cdi is not None:
            self._cdi.mkdir(parents=True, exist_ok=True)
            for path in self._cdi.iterdir():
                if cdi.is_ours(path.name):
                    path.unlink(missing_ok=True)
        self._holders = {
            folder.name: holder
            for folder in self._folder.iterdir()
            if is_slot(folder.name) and (holder := _holder_in(folder)) is not None
        }

    def empty(self, slots: Iterable[str]) -> None:
        """Remove the content of *slots* before they are reassigned; raises OSError."""
        for slot in slots:
            self._empty(slot)

    def allocation(self, slots: Collection[str], *, soft: bool) -> SlotAllocation:
        """Say what the container that is given *slots* finds its content by.

        Only where it may be a *soft* share, which needs the library, are there mounts.
        """
        lead = min(slots)
        if self._cdi is not None:
            return SlotAllocation(device=cdi.device(lead))
        folder = self._folder / lead
        try:
            if not soft:
                folder.mkdir(exist_ok=True)
                (folder / _WITHOUT_MOUNTS).touch()
                return SlotAllocation()
            (folder / _WITHOUT_MOUNTS).unlink(missing_ok=True)
        except OSError as error:
            log.warning("slot marker not written", slot=lead, soft=soft, error=str(error))
        return SlotAllocation(mounts=slot_mounts(str(folder)))

    def lacks_mounts(self, slots: Collection[str]) -> bool:
        """Say whether the container that holds *slots* was told of nothing to mount."""
        return self._cdi is None and (self._folder / min(slots) / _WITHOUT_MOUNTS).exists()

    def holders(self, slots: Iterable[str]) -> frozenset[str]:
        """Return the uids of the pods that were last given one of *slots*."""
        uids = map(self._holders.get, slots)  # one look at each: a sweep may be under way
        return frozenset(uid for uid in uids if uid is not None)

    def write(self, slots: Collection[str], owner: Owner, content: ContainerEdits) -> None:
        """Make the *slots* of one container hand out *content*; raises OSError.

        What is there already is left alone. The holder is written first: a slot with content
        and without a holder would never be emptied.
        """
        lead = min(slots)
        for slot in slots:
            self._record_holder(slot, owner.uid)
        if self._cdi is not None:
            self._publish(self._cdi, lead, cdi.document(lead, content))
        else:
            self._link(self._folder / lead, content)

    def sweep(self, live: Collection[str]) -> None:
        """Empty and forget the slots whose holder's uid was not *live* twice; raises OSError.

        Whoever calls this knows that the containers of all others are gone. Twice in a row,
        because a pod may have started since *live* was put together.
        """
        dead = {
            slot_and_uid
            for slot_and_uid in tuple(self._holders.items())
            if slot_and_uid[1] not in live
        }
        for slot, uid in dead & self._to_empty:
            self._release(slot, uid)
        self._to_empty = dead

    def _release(self, slot: str, uid: str) -> None:
        with self._holder_lock:
            if self._holders.get(slot) != uid:
                return
            self._empty(slot)
            (self._folder / slot / _HOLDER).unlink(missing_ok=True)
            del self._holders[slot]

    def _empty(self, slot: str) -> None:
        if self._cdi is not None:
            (self._cdi / cdi.file_name(slot)).unlink(missing_ok=True)
            return
        for mount in slot_mounts(str(self._folder / slot)):
            Path(mount.host).unlink(missing_ok=True)

    def _record_holder(self, slot: str, uid: str) -> None:
        with self._holder_lock:
            if self._holders.get(slot) == uid:
                return
            folder = self._folder / slot
            folder.mkdir(exist_ok=True)
            draft = folder / f"{_HOLDER}.new"
            draft.write_bytes(msgspec.json.encode(_Holder(uid)))
            draft.replace(folder / _HOLDER)
            self._holders[slot] = uid

    @staticmethod
    def _publish(folder: Path, slot: str, text: bytes) -> None:
        """Rename a draft of the same folder into place.

        containerd does not notice files that are renamed into the folder from elsewhere, and would
        keep using the document of the previous pod.
        """
        path, draft = folder / cdi.file_name(slot), folder / cdi.draft_name(slot)
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == text:
                return
            path.unlink()
            time.sleep(_NOTICE_SECONDS)
        draft.write_bytes(text)
        draft.chmod(0o644)
        draft.replace(path)

    @staticmethod
    def _link(folder: Path, content: ContainerEdits) -> None:
        """Put links in place, which the runtime follows when it makes the container."""
        targets = {mount.path: mount.host for mount in content.mounts}
        for mount in slot_mounts(str(folder)):
            target, link = targets.get(mount.path, _NO_TARGET), Path(mount.host)
            with contextlib.suppress(OSError):  # not a link, or not there
                if str(link.readlink()) == target:
                    continue
            draft = folder / f"{basename(mount.host)}.new"
            draft.unlink(missing_ok=True)
            draft.symlink_to(target)
            draft.replace(link)


def _holder_in(folder: Path) -> str | None:
    """Return the uid that a slot's folder names, ``None`` for none and for what was cut short."""
    try:
        return msgspec.json.decode((folder / _HOLDER).read_bytes(), type=_Holder).uid
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
