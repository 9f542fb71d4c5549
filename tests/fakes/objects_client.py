"""A client that reads and writes objects without a server: versions count, hooks do not exist."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import orjson

from kube.client import CallOptions
from kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from tests.fakes.api_client import FakeApiClient
from tests.fakes.api_objects import Objects, parsed
from tests.fakes.api_rules import Json, RefusedError

_ERRORS: Mapping[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 422: InvalidError}


@dataclass(slots=True)
class ObjectsClient(FakeApiClient):
    """Calls of *objects*; ``before_write`` is called with the path, to let others be faster."""

    objects: Objects = field(default_factory=Objects)
    before_write: Callable[[str], None] = lambda _: None

    def put(self, path: str, written: Json) -> Json:
        """Store an object whatever its version."""
        return self.objects.create(parsed(path), written)

    def read(self, path: str) -> Json:
        """Return a stored object."""
        return self.objects.read(parsed(path))

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        return _answer(lambda: self.read(path))

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        return self._patch(path, "application/json-patch+json", orjson.dumps(list(ops)))

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **_: Unpack[CallOptions]
    ) -> bytes:
        return self._patch(path, "application/merge-patch+json", orjson.dumps(changes))

    def _patch(self, path: str, media: str, body: bytes) -> bytes:
        self.before_write(path)
        return _answer(lambda: self.objects.patch(parsed(path), media, body))


def _answer(call: Callable[[], Json]) -> bytes:
    try:
        return orjson.dumps(call())
    except RefusedError as error:
        raise _ERRORS[error.code](error.code, error.reason, str(error)) from error
