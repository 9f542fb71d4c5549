"""Lines to the API server that lie, as a careless implementation would have made them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import orjson

from kube.client import CallOptions
from tests.builders.gpunodes import Json
from tests.fakes.api_client import FakeApiClient
from tests.model.cluster import World

Ops = Sequence[Mapping[str, object]]


@dataclass(slots=True)
class Line(FakeApiClient):
    """A line that changes what is read (``seen``) or what is sent as a JSON Patch (``sent``)."""

    world: World
    seen: Callable[[Json], None] = lambda _: None
    sent: Callable[[Ops], Ops] = lambda ops: ops

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        found = orjson.loads(await self.world.get(path))
        self.seen(found)
        return orjson.dumps(found)

    async def json_patch(self, path: str, ops: Ops, **_: Unpack[CallOptions]) -> bytes:
        return await self.world.json_patch(path, self.sent(ops))

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        return await self.world.merge_patch(path, changes)

    async def create(self, path: str, body: bytes, **_: Unpack[CallOptions]) -> bytes:
        return await self.world.create(path, body)

    async def delete(
        self, path: str, *, body: bytes | None = None, **_: Unpack[CallOptions]
    ) -> bytes:
        return await self.world.delete(path, body=body)


def untested(world: World) -> Line:
    """Forget what a patch tests."""
    return Line(world, sent=_bare)


def untested_commit(world: World) -> Line:
    """Forget what a commit tests, and nothing else."""
    return Line(world, sent=lambda ops: ops if _removes(ops) else _bare(ops))


def unversioned(world: World) -> Line:
    """Forget to test that nothing has happened since."""
    return Line(world, sent=lambda ops: _without(ops, "/metadata/resourceVersion"))


def uninventoried(world: World) -> Line:
    """Forget to test that GPUs are as they were."""
    return Line(world, sent=lambda ops: _without(ops, "/status/inventory"))


def _removes(ops: Ops) -> bool:
    return any(op["op"] == "remove" for op in ops)


def _bare(ops: Ops) -> Ops:
    return [op for op in ops if op["op"] != "test"]


def _without(ops: Ops, path: str) -> Ops:
    return [op for op in ops if op["op"] != "test" or op["path"] != path]


def forgetful(world: World) -> Line:
    """Let nobody recognise the entry that their own pod has already."""

    def renamed(found: Json) -> None:
        for entry in found.get("spec", {}).get("entries", ()):
            entry["pod"]["uid"] += "-unknown"

    return Line(world, seen=renamed)


def stale(world: World) -> Line:
    """Show every pod as a cache had it before it was bound."""
    return Line(world, seen=lambda found: found.get("spec", {}).pop("nodeName", None))


def blind(world: World) -> Line:
    """Do not see what agents found in use without an entry."""
    return Line(world, seen=lambda found: found.get("status", {}).pop("unpromised", None))


def unshut(world: World) -> Line:
    """Take every GPUNode for one that takes no commit."""
    return Line(world, seen=lambda found: found.get("status", {}).pop("inventory", None))


def sociable(_world: World, found: Json) -> Json:
    """Read a GPUNode as who takes the whole of a GPU for most of it."""
    read = copy.deepcopy(found)
    for entry in read["spec"]["entries"]:
        for device in (d for held in entry["containers"] for d in held["devices"]):
            device["cores"] = min(device["cores"], 99)
    return read


def classless(_world: World, found: Json) -> Json:
    """Read a GPUNode as who knows of no sharing classes."""
    read = copy.deepcopy(found)
    for entry in read["spec"]["entries"]:
        for device in (d for held in entry["containers"] for d in held["devices"]):
            device.pop("share", None)
    return read


def slotless(_world: World, found: Json) -> Json:
    """Read a GPUNode as if any number could share a GPU."""
    return _gpus_with(found, slots=64)


def alone(_world: World, found: Json) -> Json:
    """Read a GPUNode as if nobody else used its GPUs."""
    return _gpus_with(found, foreignMiB=0)


def hopeful(_world: World, found: Json) -> Json:
    """Read a GPUNode as if no GPU ever failed."""
    return _gpus_with(found, healthy=True)


def uncut(_world: World, found: Json) -> Json:
    """Read a GPUNode as if every GPU were shared in software."""
    return _gpus_with(found, mode="hami-core")


def _gpus_with(found: Json, **changes: object) -> Json:
    status = found["status"]
    gpus = [gpu | changes for gpu in status.get("gpus", ())]
    return {**found, "status": status | ({"gpus": gpus} if "gpus" in status else {})}
