"""What somebody may see in the console: rights that they have in the cluster already."""

import asyncio
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final

from console.access.expiring_cache import ExpiringCache
from console.access.identity import UserIdentity
from console.access.reviews_client import ReviewsUnavailableError, Right, review_access
from console.records.query import Scope
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock

KNOWN_SECONDS: Final = 60.0  # for which rights are believed without asking again
SCOPE_SECONDS: Final = 30.0  # for all reviews of one viewer
MOST_VIEWERS: Final = 1024  # remembered
AT_ONCE: Final = 24  # reviews under way, of all viewers


class PeopleShown(StrEnum):
    """To whom the names of requesters are shown."""

    EVENTS = "events"  # who may get events wherever they may get pods
    EVERYBODY = "everybody"  # who may get pods


class ViewerRights:
    """Finds and remembers the scope of each viewer; denies whatever was not granted."""

    def __init__(
        self,
        client: ApiClient,
        namespaces: Callable[[], Collection[str] | None],
        *,
        people: PeopleShown = PeopleShown.EVENTS,
        clock: Clock = SYSTEM,
    ) -> None:
        """Ask through *client* about the *namespaces* known, ``None`` while they are not."""
        self._client = client
        self._namespaces = namespaces
        self._people = people
        self._clock = clock
        self._known: ExpiringCache[UserIdentity, Scope] = ExpiringCache(MOST_VIEWERS)
        self._asked: dict[UserIdentity, asyncio.Task[Scope]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def scope(self, identity: UserIdentity) -> Scope:
        """Return what somebody may see; raises ReviewsUnavailableError, and grants nothing then."""
        known = self._known.get(identity, self._clock.monotonic())
        if known is not None:
            return known
        task = self._asked.get(identity)
        if task is None:
            task = asyncio.create_task(self._ask(identity), name="access reviews")
            self._asked[identity] = task
            task.add_done_callback(lambda done: self._end(identity, done))
        return await asyncio.shield(task)

    def _end(self, identity: UserIdentity, done: asyncio.Task[Scope]) -> None:
        self._asked.pop(identity, None)
        if not done.cancelled():
            done.exception()  # whoever asked may have gone

    async def _ask(self, identity: UserIdentity) -> Scope:
        try:
            async with asyncio.timeout(SCOPE_SECONDS):
                scope = await self._find_scope(identity)
        except TimeoutError as error:
            raise ReviewsUnavailableError("the API server answers too slowly") from error
        self._known.put(identity, scope, self._clock.monotonic() + KNOWN_SECONDS)
        return scope

    async def _find_scope(self, identity: UserIdentity) -> Scope:
        cluster, everywhere = await asyncio.gather(
            self._allows(identity, Right("get", "nodes")),
            self._allows(identity, Right("get", "pods")),
        )
        if everywhere:
            people = await self._shows_people(identity, ("",))
            return Scope(namespaces=None, cluster=cluster, people=people)
        names = self._namespaces()
        if names is None:
            raise ReviewsUnavailableError("the namespaces of the cluster are not known yet")
        readable = await self._allowed_in(identity, "pods", names)
        people = bool(readable) and await self._shows_people(identity, readable)
        return Scope(namespaces=readable, cluster=cluster, people=people)

    async def _shows_people(self, identity: UserIdentity, namespaces: Collection[str]) -> bool:
        if self._people is PeopleShown.EVERYBODY or await self._allows(
            identity, Right("get", "events")
        ):
            return True
        if "" in namespaces:
            return False
        return await self._allowed_in(identity, "events", namespaces) == frozenset(namespaces)

    async def _allowed_in(
        self, identity: UserIdentity, resource: str, namespaces: Collection[str]
    ) -> frozenset[str]:
        """Return those of *namespaces* where somebody may get *resource*."""
        left, allowed = iter(sorted(namespaces)), set[str]()

        async def work() -> None:
            for name in left:  # shared, so each name is asked about once
                if await self._allows(identity, Right("get", resource, name)):
                    allowed.add(name)

        workers = [asyncio.create_task(work()) for _ in range(min(AT_ONCE, len(namespaces)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return frozenset(allowed)

    async def _allows(self, identity: UserIdentity, right: Right) -> bool:
        async with self._turns:
            return await review_access(self._client, identity, right)
