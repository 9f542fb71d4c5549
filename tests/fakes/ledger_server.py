"""An API server with GPUNodes and some pods: what a bind reads, and what it writes."""

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
    """GPUNode n0, others by name, and some pods.

    ``trouble`` is raised, one a write to n0, before it is carried out.
    """

    gpu_node: Json = field(default_factory=lambda: gpu_node(nodes_of(8)))
    others: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    trouble: list[KubeError] = field(default_factory=list)
    before_write: Callable[["LedgerServer"], None] = lambda _: None
    slow: float = 0
    writes: int = 0

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        await asyncio.sleep(self.slow)
        name = path.rpartition("/")[2]
        ledgers = {**self.others, "n0": self.gpu_node}
        found = (ledgers if "/gpunodes/" in path else self.pods).get(name)
        if found is None:
            raise NotFoundError(404, "NotFound", path)
        return orjson.dumps(found)

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        await asyncio.sleep(0)
        name = path.rpartition("/")[2]
        if name != "n0":
            self.others[name] = patched_or_refused(self.others[name], ops)
            return orjson.dumps(self.others[name])
        self.writes += 1
        self.before_write(self)
        if self.trouble:
            raise self.trouble.pop()
        self.gpu_node = patched_or_refused(self.gpu_node, ops)
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


def patched_or_refused(stored: Json, ops: Sequence[Mapping[str, object]]) -> Json:
    """Return *stored* with *ops* applied; raises ``InvalidError`` where one of its tests fails."""
    try:
        return patched(stored, orjson.loads(orjson.dumps(list(ops))))
    except jsonpatch.JsonPatchException as error:
        raise InvalidError(422, "Invalid", "a test failed") from error
