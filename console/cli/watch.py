"""Watching: a list is read again and again, until the user interrupts it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Never, Protocol, Self, TypeVar

from kube.errors import ApiError, KubeError, UnreachableError

INTERVAL: Final = 2.0  # seconds between two reads
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500


class WatchedReader(Protocol):
    """What a view reads from: the cluster, or the console."""

    @property
    def warn(self) -> Callable[[str], None]:
        """Return what warns whoever asked."""

    def with_warn(self, warn: Callable[[str], None]) -> Self:
        """Return the same reader, which warns by *warn*."""

    def warn_of_missing_rights(self) -> None:
        """Name what was left out because the person may not read it."""


AnyReader = TypeVar("AnyReader", bound=WatchedReader)


async def watch(
    reader: AnyReader,
    view: Callable[[AnyReader], Awaitable[int]],
    *,
    interval: float = INTERVAL,
) -> Never:
    """Repeat *view* every *interval* seconds; warn of each thing once.

    A server that does not answer is asked again, and the user is told once per outage. Raises what
    *view* raises otherwise.
    """
    said: set[str] = set()

    def warn(text: str) -> None:
        if text not in said:
            said.add(text)
            reader.warn(text)

    once = reader.with_warn(warn)
    while True:
        try:
            await view(once)
        except KubeError as error:
            if not _passes(error):
                raise
            warn(f"{_OUTAGE}: {error}")
        else:
            once.warn_of_missing_rights()
            said = {text for text in said if not text.startswith(_OUTAGE)}
        await asyncio.sleep(interval)


_OUTAGE: Final = "the server does not answer, and will be asked again"


def _passes(error: KubeError) -> bool:
    """Say whether the same read may succeed later."""
    if isinstance(error, ApiError):
        return error.status == _TOO_MANY_REQUESTS or error.status >= _SERVER_ERROR
    return isinstance(error, UnreachableError)
