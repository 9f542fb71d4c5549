"""Lines to the API server that lie, as a careless implementation would have made them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.model.world import World


@dataclass(slots=True)
class Untested:
    """A line that forgets what a patch tests, as a careless writer would."""

    world: World

    async def get(self, path: str, **_: float) -> bytes:
        return await self.world.get(path)

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]], **_: float) -> bytes:
        kept = [op for op in ops if op["op"] != "test"]
        return await self.world.json_patch(path, kept)


@dataclass(slots=True)
class Forgetful:
    """A line on which nobody recognises the entry that their own pod has already."""

    world: World

    async def get(self, path: str, **_: float) -> bytes:
        found = json.loads(await self.world.get(path))
        for entry in found["spec"].get("entries", ()):
            entry["pod"]["uid"] += "-unknown"
        return json.dumps(found).encode()

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]], **_: float) -> bytes:
        return await self.world.json_patch(path, ops)


@dataclass(slots=True)
class Stale:
    """A line on which every pod is as a cache had it before it was bound."""

    world: World

    async def get(self, path: str, **_: float) -> bytes:
        found = json.loads(await self.world.get(path))
        found["spec"].pop("nodeName", None)
        return json.dumps(found).encode()

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]], **_: float) -> bytes:
        return await self.world.json_patch(path, ops)
