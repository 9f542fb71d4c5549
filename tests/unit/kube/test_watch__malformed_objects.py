"""An object that nobody can read is left as it was, and ends neither the watch nor the program."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import orjson
import pytest

from kube.client import Client
from kube.stream import TooDeepError, parse_frame
from kube.watch import WatchHealth, WatchSource, follow

DEEP = b"[" * 2000 + b"]" * 2000
END = {"k8s.io/initial-events-end": "true"}


def line(name: str, kind: str = "ADDED", *, fields: bytes = b"[]") -> bytes:
    """Write an event about an object whose ``managedFields`` somebody wrote as he liked."""
    metadata = b'{"name":"%s","resourceVersion":"1","managedFields":%s}' % (name.encode(), fields)
    return b'{"type":"%s","object":{"metadata":%s}}' % (kind.encode(), metadata)


LISTED = orjson.dumps(
    {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1", "annotations": END}}}
)


class Stream:
    """A server that streams some lines and then nothing more."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines

    @asynccontextmanager
    async def stream(self, _: str, **__: object) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
        async def batches() -> AsyncIterator[Sequence[bytes]]:
            yield self._lines
            await asyncio.Event().wait()

        yield batches()


def name_of(raw: bytes) -> str:
    name: str = orjson.loads(raw)["metadata"]["name"]
    if name == "odd":
        raise RuntimeError("nobody foresaw this")
    if name == "deep":
        raise RecursionError
    return name


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(line("c", fields=DEEP), id="its-frame-cannot-be-read"),
        pytest.param(line("deep"), id="too-deep-for-its-reader"),
        pytest.param(line("odd"), id="nobody-foresaw-it"),
    ],
)
def test_an_odd_object_holds_up_no_other(malformed: bytes) -> None:
    """The picture is whole but for it, and the watch goes on."""
    pictures: list[Mapping[str, str]] = []
    pulse = WatchHealth()
    lines = [line("a"), malformed, line("b"), LISTED]
    source = WatchSource(path="/api/v1/pods", decode=name_of, key=lambda name: name)

    async def followed() -> None:
        client = cast("Client", Stream(lines))
        async with asyncio.timeout(0.05):
            await follow(client, source, pictures.append, health=pulse)

    with pytest.raises(TimeoutError):
        asyncio.run(followed())

    assert [set(picture) for picture in pictures] == [{"a", "b"}]
    assert (pulse.synced, pulse.undecodable, pulse.failures) == (True, 1, 0)


def test_what_is_too_deep_is_told_from_nonsense() -> None:
    """Of nonsense the whole stream is left; of what is too deep only that object."""
    with pytest.raises(TooDeepError, match="nested too deep"):
        parse_frame(line("a", fields=DEEP))
