"""Slots on disk: the edits that each slot brings to its container, and the pod that held it last.

With CDI the edits are one document per slot in use, which the container runtime reads. Without CDI
they are links in the slot's folder. Allocate names these as mounts before the container is known.
PreStart points them to the library and the container's region, or to ``/dev/null``. If all GPUs are
in MIG mode, no container needs mounts and Allocate names none. A reassigned slot is empty until it
is written again.
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

SLOTS_FOLDER: Final = "slots"
_HOLDER: Final = "holder"
_SETUP: Final = "setup.json"
_WITHOUT_MOUNTS: Final = "bare"  # an empty file: Allocate gave the container no mounts
_NO_TARGET: Final = "/dev/null"
# A runtime notices a changed file with a delay. Between the documents of two holders it must find
# none, rather than that of the previous holder.
_NOTICE_SECONDS: Final = 0.05
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAllocation:
    """Allocate's answer for a slot: its CDI *device*, or the *mounts* of its folder."""

    device: str | None = None
    mounts: tuple[HostMount, ...] = ()


class SlotSetup(msgspec.Struct, frozen=True):
    """What Allocate's answers depend on beside the slot; written for the relay."""

    cdi: str | None  # the folder of CDI documents; none where the runtime reads none
    soft: bool  # whether a container may get a share that needs the library


class _Holder(msgspec.Struct, frozen=True):
    uid: str


class SlotFiles:
    """The slots in *folder*, the node's ``hostRoot``.

    CDI documents go to the folder *cdi*, ``None`` without CDI.

    Calls touch small local files and block. One process at a time may own a node's slots.
    """

    def __init__(self, folder: Path, *, cdi: Path | None) -> None:
        """Touch nothing yet; ``recover`` reads the slots."""
        self._folder = folder / SLOTS_FOLDER
        self._cdi = cdi
        self.library = str(folder)
        self._holders: dict[str, str] = {}  # uid of the pod that each slot was given to last
        self._to_empty: set[tuple[str, str]] = set()  # slots and uids that the last sweep found
        self._holder_lock = threading.Lock()  # calls come from several threads

    @property
    def with_cdi(self) -> bool:
        """Say whether edits reach a container through CDI."""
        return self._cdi is not None

    @property
    def used_slots(self) -> frozenset[str]:
        """Return the slots that have a holder."""
        return frozenset(self._holders)

    def recover(self) -> None:
        """Create folders, read the holders, and remove all documents; raises OSError.

        No document is needed again: each start of a container writes it anew.
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

    def write_setup(self, *, soft: bool) -> None:
        """Write what the answers of Allocate depend on; raises OSError."""
        cdi_folder = None if self._cdi is None else str(self._cdi)
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f"{_SETUP}.new"
        draft.write_bytes(msgspec.json.encode(SlotSetup(cdi=cdi_folder, soft=soft)))
        draft.replace(self._folder / _SETUP)

    def empty(self, slots: Iterable[str]) -> None:
        """Remove the edits of *slots* before they are reassigned; raises OSError."""
        for slot in slots:
            self._empty(slot)

    def allocation(self, slots: Collection[str], *, soft: bool) -> SlotAllocation:
        """Return what Allocate answers for the container that is given *slots*.

        There are mounts only where it may get a *soft* share, which needs the library.
        """
        first_slot = min(slots)
        if self._cdi is not None:
            return SlotAllocation(device=cdi.device(first_slot))
        folder = self._folder / first_slot
        try:
            if not soft:
                folder.mkdir(exist_ok=True)
                (folder / _WITHOUT_MOUNTS).touch()
                return SlotAllocation()
            (folder / _WITHOUT_MOUNTS).unlink(missing_ok=True)
        except OSError as error:
            log.warning("slot marker not written", slot=first_slot, soft=soft, error=str(error))
        return SlotAllocation(mounts=slot_mounts(str(folder)))

    def lacks_mounts(self, slots: Collection[str]) -> bool:
        """Say whether Allocate gave the container that holds *slots* no mounts."""
        return self._cdi is None and (self._folder / min(slots) / _WITHOUT_MOUNTS).exists()

    def holders(self, slots: Iterable[str]) -> frozenset[str]:
        """Return the uids of the pods that were last given one of *slots*."""
        uids = map(self._holders.get, slots)  # one lookup each: a sweep may run concurrently
        return frozenset(uid for uid in uids if uid is not None)

    def write(self, slots: Collection[str], owner: Owner, edits: ContainerEdits) -> None:
        """Make the *slots* of one container bring *edits* to it; raises OSError.

        Files that are current stay as they are. The holder is written first: a slot with edits and
        without a holder would never be emptied.
        """
        first_slot = min(slots)
        for slot in slots:
            self._record_holder(slot, owner.uid)
        if self._cdi is not None:
            self._publish(self._cdi, first_slot, cdi.document(first_slot, edits))
        else:
            self._link(self._folder / first_slot, edits)

    def sweep(self, live: Collection[str]) -> None:
        """Release the slots whose holder is not among the *live* uids; raises OSError.

        The caller knows that the containers of all other pods are gone. A slot is released at the
        second sweep in a row, because a pod may have started since *live* was put together.
        """
        without_pod = {
            slot_and_uid
            for slot_and_uid in tuple(self._holders.items())
            if slot_and_uid[1] not in live
        }
        for slot, uid in without_pod & self._to_empty:
            self._release(slot, uid)
        self._to_empty = without_pod

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
    def _link(folder: Path, edits: ContainerEdits) -> None:
        """Create the links that the runtime follows when it creates the container."""
        targets = {mount.path: mount.host for mount in edits.mounts}
        for mount in slot_mounts(str(folder)):
            target, link = targets.get(mount.path, _NO_TARGET), Path(mount.host)
            with contextlib.suppress(OSError):  # not a link, or not there
                if str(link.readlink()) == target:
                    continue
            draft = folder / f"{basename(mount.host)}.new"
            draft.unlink(missing_ok=True)
            draft.symlink_to(target)
            draft.replace(link)


def read_setup(folder: Path) -> SlotSetup | None:
    """Return what the last agent wrote in *folder*, the ``hostRoot``; ``None`` if there is none."""
    path = folder / SLOTS_FOLDER / _SETUP
    try:
        return msgspec.json.decode(path.read_bytes(), type=SlotSetup)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _holder_in(folder: Path) -> str | None:
    """Return the uid that a slot's folder names, ``None`` without a complete record."""
    try:
        return msgspec.json.decode((folder / _HOLDER).read_bytes(), type=_Holder).uid
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
