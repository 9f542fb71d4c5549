"""What a run remembers of its past: what it may be excused for, who knew what, how far it came."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from tests.builders.gpunodes import Json

DRY: Final = ContextVar("DRY", default=False)  # whether a dry run is being reviewed
Place = tuple[str, str]  # a node, and the uid of a pod


@dataclass(frozen=True, slots=True)
class Write:
    """A write under way: its writer cannot know what came after change *sent* of the world.

    ``read`` is the object as the task that writes was last shown it, empty where it never was.
    ``dry`` says that it serves a review of which nothing may stay.
    """

    sent: int
    read: bytes
    dry: bool


@dataclass(slots=True)
class Past:
    """Pods that lost what they had to others' faults, and versions by when they first stood.

    ``excused`` may be bound without an entry, ``bereft`` may run without one, both until they are
    entered again. ``displaced`` lost an entry at any time, with its ledger or to a bind elsewhere,
    ``exchanged`` had it changed, so their annotations may tell of the earlier one.
    """

    excused: set[Place] = field(default_factory=set)
    bereft: set[Place] = field(default_factory=set)
    displaced: set[Place] = field(default_factory=set)
    exchanged: set[Place] = field(default_factory=set)
    strays: list[str] = field(default_factory=list)  # paths that dry runs have written to
    reached: Counter[str] = field(default_factory=Counter)
    _first: dict[tuple[str, object], int] = field(default_factory=dict)
    _shown: "WeakKeyDictionary[asyncio.Task[Any], dict[str, bytes]]" = field(
        default_factory=WeakKeyDictionary
    )

    def show(self, path: str, found: bytes) -> None:
        """Note what the task that runs has read."""
        self._read()[path] = found

    def writing(self, path: str, change: int) -> Write:
        """Return a write that the task that runs sends, after a *change* of the world."""
        write = Write(sent=change, read=self._read().get(path, b""), dry=DRY.get())
        if write.dry:
            self.strays.append(path)
        return write

    def _read(self) -> dict[str, bytes]:
        task = asyncio.current_task()
        assert task is not None
        return self._shown.setdefault(task, {})

    def kept(self, found: Json, change: int) -> None:
        """Note since which change of the world a GPUNode has promised this, and can hold this."""
        for version in versions(found):
            self._first.setdefault((found["metadata"]["name"], version), change)

    def later(self, found: Json, version: object, than: int) -> bool:
        """Say whether a version of a GPUNode first stood later than a change of the world."""
        return self._first.get((found["metadata"]["name"], version), 0) > than

    def lost(self, stored: Json, bound: Iterable[str]) -> None:
        """Note who has to be entered again where a ledger is lost."""
        name, promised = stored["metadata"]["name"], uids(stored)
        self.excused |= {(name, uid) for uid in promised.union(bound)}
        self.displaced |= {(name, uid) for uid in promised.union(bound)}
        self.bereft |= {(name, uid) for uid in running(stored)}

    def written(self, old: Json, new: Json, bound: Iterable[str]) -> None:
        """Note what a patch did to entries; *bound* are the pods of that node."""
        name = new["metadata"]["name"]
        for uid, entry in changed(old, new).items():
            before = entries(old).get(uid)
            self.excused.discard((name, uid))
            self.bereft.discard((name, uid))
            if before is not None and before["containers"] != entry["containers"]:
                self.exchanged.add((name, uid))
        if not old["status"].get("inventory"):  # shut: nothing else is promised what still runs
            gone = uids(old) - uids(new) - set(bound)
            self.bereft |= {(name, uid) for uid in gone}

    def replaced(self, old: Json, new: Json, *, living: Collection[str]) -> None:
        """Note who lost an entry while *living*: a Binding that was let pass may land after it."""
        name = new["metadata"]["name"]
        gone = (uids(old) - uids(new)).intersection(living)
        self.excused |= {(name, uid) for uid in gone}
        self.displaced |= {(name, uid) for uid in gone}
        self.reached["replaced"] += len(gone)


def versions(found: Json) -> tuple[object, object]:
    """Return what names the promises of a GPUNode, and what names the hardware that they are on."""
    metadata = found["metadata"]
    return (metadata["uid"], metadata["generation"]), found["status"].get("inventory", "")


def entries(stored: Json) -> dict[str, Json]:
    """Return the entries of a GPUNode as they stand there, by the uid of their pod."""
    return {entry["pod"]["uid"]: entry for entry in stored["spec"]["entries"]}


def uids(stored: Json) -> set[str]:
    return set(entries(stored))


def changed(old: Json, new: Json) -> dict[str, Json]:
    """Return the entries that are new, or not what they were, be it only for how long."""
    before = entries(old)
    return {uid: entry for uid, entry in entries(new).items() if before.get(uid) != entry}


def running(stored: Json) -> set[str]:
    """Return the pods that the agent says may run, with an entry or without."""
    status = stored["status"]
    without = {entry["pod"]["uid"] for entry in status.get("unpromised", ())}
    return without.union(status.get("held", ()))
