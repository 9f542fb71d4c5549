"""Lines to the API server that lie, as a careless implementation would have made them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tests.gpunodes import Json
from tests.model.world import World

Ops = Sequence[Mapping[str, object]]


@dataclass(slots=True)
class Line:
    """A line that changes what is read (``seen``) or what is sent as a JSON Patch (``sent``)."""

    world: World
    seen: Callable[[Json], None] = lambda _: None
    sent: Callable[[Ops], Ops] = lambda ops: ops

    async def get(self, path: str, **_: float) -> bytes:
        found = orjson.loads(await self.world.get(path))
        self.seen(found)
        return orjson.dumps(found)

    async def json_patch(self, path: str, ops: Ops, **_: float) -> bytes:
        return await self.world.json_patch(path, self.sent(ops))

    async def merge_patch(self, path: str, changes: Mapping[str, Any], **_: float) -> bytes:
        return await self.world.merge_patch(path, changes)

    async def create(self, path: str, body: bytes, **_: float) -> bytes:
        return await self.world.create(path, body)

    async def delete(self, path: str, *, body: bytes | None = None, **_: float) -> bytes:
        return await self.world.delete(path, body=body)


def untested(world: World) -> Line:
    """Forget what a patch tests."""
    return Line(world, sent=lambda ops: [op for op in ops if op["op"] != "test"])


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
