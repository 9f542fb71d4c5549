"""A client of the API server for tests, of which a fake carries out the calls that it expects."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from kube.client import CallOptions


class FakeApiClient:
    """Satisfies :class:`kube.client.ApiClient`; a call that no subclass carries out fails."""

    __slots__ = ()

    async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        raise AssertionError(("get", path, options))

    async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
        raise AssertionError(("create", path, body, options))

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **options: Unpack[CallOptions]
    ) -> bytes:
        raise AssertionError(("json_patch", path, ops, options))

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **options: Unpack[CallOptions]
    ) -> bytes:
        raise AssertionError(("merge_patch", path, changes, options))

    async def apply(
        self, path: str, body: bytes, *, field_manager: str, **options: Unpack[CallOptions]
    ) -> bytes:
        raise AssertionError(("apply", path, body, field_manager, options))

    async def delete(
        self, path: str, *, body: bytes | None = None, **options: Unpack[CallOptions]
    ) -> bytes:
        raise AssertionError(("delete", path, body, options))
