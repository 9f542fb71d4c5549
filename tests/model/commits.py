"""What must hold in the moment of a write to a GPUNode, when both its sides can be seen.

The numbers are those of docs/design.md, invariants: S1 and S10 nothing is promised on GPUs that
cannot hold it, or on what its writer cannot have known; S4 nobody but its agent says what mode a
GPU is in; S5 a promise that stands is kept to the letter; S7 nothing is freed that may still run;
S8 and S9 nobody removes what has changed since they read it; S13 what is promised is what was asked
for.
"""

from collections.abc import Iterator

import msgspec
import orjson

from allocator.catalog.vocabularies import GPUSHARE
from allocator.ledger.decode import decode
from allocator.model.allocation import Entry, Grant
from allocator.model.gpu import Gpu
from allocator.model.request import METAX, ContainerRequest, Mode
from tests.builders.gpunodes import Json
from tests.model.cluster import World
from tests.model.history import changed, entries, uids, versions
from tests.model.invariants import BrokenError
from tests.model.oracle import crowded, serves, wrong


def committed(world: World, old: Json, new: Json) -> None:
    """Raise :class:`BrokenError` with what is wrong about a write, if anything is."""
    for found in (
        *_anothers_word(old, new),
        *_unknown(world, old, new),
        *_unsound(world, old, new),
        *_exchanged(world, old, new),
        *_freed(old, new),
        *_removed_unread(world, old, new),
    ):
        raise BrokenError(found)
    _count(world, old, new)


def _anothers_word(old: Json, new: Json) -> Iterator[str]:
    """Hold the control plane to silence about hardware (S4)."""
    before, after = old["status"].get("gpus"), new["status"].get("gpus")
    if before != after:
        yield f"S4 {before} became {after}, and no agent said so"


def _unknown(world: World, old: Json, new: Json) -> Iterator[str]:
    """Yield promises that rest on what is not so any more: their writer cannot have known (S10)."""
    added = sorted(changed(old, new))
    if not added:
        return
    assert world.write is not None
    ledger, inventory = versions(old)
    if "deletionTimestamp" in old["metadata"] or not inventory:
        yield f"S10 {added} were promised what is shut"
    if world.past.later(old, inventory, than=world.write.sent):
        yield f"S10 {added} were promised what has changed since"
    if world.past.later(old, ledger, than=world.write.sent):
        yield f"S8 {added} were promised beside what their writer cannot have known"


def _unsound(world: World, old: Json, new: Json) -> Iterator[str]:
    """Hold what is promised, anew or once more, to what was asked for, and to GPUs that work."""
    gpus = {gpu.uuid: gpu for gpu in world.decoded(new["metadata"]["name"]).node.gpus}
    for entry in _promised(world, old, new):
        grants = [grant for held in entry.containers for grant in held.grants]
        there = [gpus[grant.gpu] for grant in grants if grant.gpu in gpus]
        if len(there) < len(grants) or not all(gpu.healthy for gpu in there):
            yield f"S10 {entry.uid} was promised a GPU that is ill or gone"
            return
        yield from (f"{one}, promised to {entry.uid}" for gpu in there for one in wrong(gpu))
        for gpu in there:
            if crowded(gpu):
                yield f"S1 {entry.uid} was promised memory of {gpu.uuid} that others hold"
        yield from _unasked(world, entry, gpus)


def _promised(world: World, old: Json, new: Json) -> list[Entry]:
    found = world.decoded(new["metadata"]["name"]).entries
    return [entry for entry in found if entry.uid in changed(old, new)]


def _unasked(world: World, entry: Entry, gpus: dict[str, Gpu]) -> Iterator[str]:
    """Yield what a pod was promised that it did not ask for; its own annotations are its own."""
    request = world.asked[entry.uid]
    told = f"S13 {entry.uid} asked for {request.containers}, was promised {entry.containers}"
    names = [held.name for held in entry.containers]
    if names != [ask.name for ask in request.containers]:
        yield told
        return
    modes = {grant.mode for held in entry.containers for grant in held.grants}
    named = {request.mode} if request.mode is not None else modes
    if len(modes) != 1 or (modes != named and entry.uid not in world.forged):
        yield told
    for one, held in zip(request.containers, entry.containers, strict=True):
        ask = one
        if entry.uid in world.forged and held.grants:  # its own annotations name its class
            ask = msgspec.structs.replace(one, share=held.grants[0].share)
        if not _as_asked(ask, held.grants, gpus):
            yield told


def _as_asked(ask: ContainerRequest, grants: tuple[Grant, ...], gpus: dict[str, Gpu]) -> bool:
    distinct = {grant.gpu for grant in grants}
    each = all(serves(gpus[grant.gpu], grant, ask) for grant in grants)
    return len(distinct) == len(grants) == ask.count and each


def _exchanged(world: World, old: Json, new: Json) -> Iterator[str]:
    """Yield promises that were exchanged and still stood: a Binding that tells of them may land."""
    before = entries(old)
    for uid, entry in changed(old, new).items():
        same = uid not in before or before[uid]["containers"] == entry["containers"]
        if same or uid in world.forged:
            continue
        if uid in old["status"].get("held", ()):
            yield f"S7 {uid} is held, and was promised something else"
        if _stands(old, uid):
            yield f"S5 {uid} was promised something else, and {before[uid]['containers']} stood"


def _stands(stored: Json, uid: str) -> bool:
    """Say whether a promise can be kept: its GPUs work as they did, and have what it holds."""
    decoded = decode(stored)
    (entry,) = (entry for entry in decoded.entries if entry.uid == uid)
    held = {grant.gpu for container in entry.containers for grant in container.grants}
    gpus = [gpu for gpu in decoded.node.gpus if gpu.uuid in held]
    return len(gpus) == len(held) and not any(
        any(wrong(gpu)) or crowded(gpu) or not gpu.healthy for gpu in gpus
    )


def _freed(old: Json, new: Json) -> Iterator[str]:
    """Yield what was freed while a container may still run on it (S7).

    Where the node has left the cluster, nothing may be promised instead: it has been shut.
    """
    gone = (uids(old) - uids(new)).intersection(old["status"].get("held", ()))
    if gone and old["status"].get("inventory"):
        yield f"S7 {sorted(gone)} are held and were freed"


def _removed_unread(world: World, old: Json, new: Json) -> Iterator[str]:
    """Yield what was removed and is not what its remover read (S8, S9)."""
    gone = uids(old) - uids(new)
    if not gone:
        return
    assert world.write is not None
    read: Json = orjson.loads(world.write.read or b"{}")
    if not read or read["metadata"]["uid"] != old["metadata"]["uid"]:
        yield f"S8 {sorted(gone)} were removed from a ledger that was not read"
        return
    known, now = entries(read), entries(old)
    for uid in sorted(gone):
        if known.get(uid) != now[uid]:
            yield f"S9 {uid} was removed, and has changed since it was read"


def _count(world: World, old: Json, new: Json) -> None:
    """Count what a run has come to see."""
    name, reached = new["metadata"]["name"], world.past.reached
    there = set(world.bound(name))
    unbound = {pod["metadata"]["uid"] for pod in world.pods.values()} - there
    reached["removed by age"] += len((uids(old) - uids(new)) & unbound)
    for entry in _promised(world, old, new):
        grants = [grant for held in entry.containers for grant in held.grants]
        reached["late commits"] += entry.uid in there
        reached["rebuilt"] += entry.uid in there and (name, entry.uid) in world.past.excused
        reached["of several GPUs"] += len({grant.gpu for grant in grants}) > 1
        reached["in two containers"] += len(entry.containers) > 1
        if world.asked[entry.uid].vocabulary == GPUSHARE.name:
            reached["whole by gpushare" if grants[0].cores else "shared by gpushare"] += 1
        reached["shared by metax"] += world.asked[entry.uid].family == METAX
        if world.asked[entry.uid].mode is None:
            reached[f"{grants[0].mode} chosen"] += 1
    for gpu in world.decoded(name).node.gpus:
        soft = gpu.mode is not Mode.MIG
        reached["full slots"] += soft and len(gpu.grants) == gpu.slots
        reached["beside foreign memory"] += soft and bool(gpu.foreign and gpu.grants)
