"""An API server with one GPUNode and some pods: what a bind reads, and the one write it makes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import jsonpatch
import orjson

from kube.client import CallOptions
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from tests.builders.gpunodes import Json, gpu_node, patched
from tests.builders.model import nodes_of
from tests.fakes.api_client import FakeApiClient


@dataclass(slots=True)
class LedgerServer(FakeApiClient):
    """One GPUNode and some pods; ``trouble`` is raised, one a write, before it is carried out."""

    gpu_node: Json = field(default_factory=lambda: gpu_node(nodes_of(8)))
    pods: dict[str, Json] = field(default_factory=dict)
    trouble: list[KubeError] = field(default_factory=list)
    before_write: Callable[["LedgerServer"], None] = lambda _: None
    slow: float = 0
    writes: int = 0

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        await asyncio.sleep(self.slow)
        name = path.rpartition("/")[2]
        found = self.gpu_node if name == "n0" else self.pods.get(name)
        if found is None:
            raise NotFoundError(404, "NotFound", path)
        return orjson.dumps(found)

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        assert path.endswith("/n0")
        await asyncio.sleep(0)
        self.writes += 1
        self.before_write(self)
        if self.trouble:
            raise self.trouble.pop()
        try:
            self.gpu_node = patched(self.gpu_node, orjson.loads(orjson.dumps(list(ops))))
        except jsonpatch.JsonPatchException as error:
            raise InvalidError(422, "Invalid", "a test failed") from error
        return orjson.dumps(self.gpu_node)

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        await asyncio.sleep(0)
        found = self.pods[path.rpartition("/")[2]]
        if changes["metadata"]["uid"] != found["metadata"]["uid"]:
            raise ConflictError(409, "Conflict", "the uid is another's")
        present = found["metadata"].setdefault("annotations", {})
        present.update(changes["metadata"]["annotations"])
        return b"{}"

    @property
    def uids(self) -> list[str]:
        return [entry["pod"]["uid"] for entry in self.gpu_node["spec"]["entries"]]
