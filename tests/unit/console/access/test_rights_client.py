"""What somebody may see follows from what they may read in the cluster."""

import asyncio
import gc
from collections.abc import Collection
from typing import Unpack

import pytest

from console.access.identity import UserIdentity
from console.access.reviews_client import ReviewsUnavailableError
from console.access.rights_client import AT_ONCE, KNOWN_SECONDS, PeopleShown, ViewerRights
from console.records.query import EVERYTHING, NOTHING, Scope
from kube.client import CallOptions
from kube.errors import UnreachableError
from tests.fakes.kube_clock import FakeClock
from tests.fakes.reviews import FakeReviews

AMY = UserIdentity(user="amy")
NAMES = frozenset({"a", "b", "c"})


def scope(
    *grants: tuple[str, str, str],
    people: PeopleShown = PeopleShown.EVENTS,
    namespaces: Collection[str] | None = NAMES,
) -> Scope:
    reviews = FakeReviews()
    reviews.grants = {("amy", *grant) for grant in grants}

    async def ask() -> Scope:
        return await ViewerRights(reviews, lambda: namespaces, people=people).scope(AMY)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        ([], NOTHING),
        ([("list", "pods", "a"), ("get", "services", "a")], NOTHING),
        ([("get", "events", "*")], NOTHING),
        ([("get", "pods", "a")], Scope(namespaces=frozenset("a"))),
        ([("get", "pods", "gone")], NOTHING),
        ([("get", "nodes", "*")], Scope(cluster=True)),
        ([("get", "pods", "*")], Scope(namespaces=None)),
        ([("get", "pods", "*"), ("get", "events", "a")], Scope(namespaces=None)),
        (
            [("get", "pods", "*"), ("get", "events", "*")],
            Scope(namespaces=None, people=True),
        ),
        (
            [("get", "pods", "a"), ("get", "events", "a")],
            Scope(namespaces=frozenset("a"), people=True),
        ),
        # Names of people are shown in all namespaces or in none.
        (
            [("get", "pods", "a"), ("get", "pods", "b"), ("get", "events", "a")],
            Scope(namespaces=frozenset("ab")),
        ),
        (
            [("get", "pods", "a"), ("get", "pods", "b"), ("get", "events", "*")],
            Scope(namespaces=frozenset("ab"), people=True),
        ),
        (
            [("get", kind, "*") for kind in ("pods", "nodes", "events")],
            EVERYTHING,
        ),
    ],
)
def test_rights_become_a_scope(grants: list[tuple[str, str, str]], expected: Scope) -> None:
    """Whatever was not granted is denied."""
    assert scope(*grants) == expected


def test_names_of_people_for_everybody_who_sees_pods() -> None:
    """By setting; who sees no pod still sees no people."""
    assert scope(("get", "pods", "a"), people=PeopleShown.EVERYBODY).people
    assert not scope(people=PeopleShown.EVERYBODY).people
    assert not scope(("get", "nodes", "*"), people=PeopleShown.EVERYBODY).people


def test_before_namespaces_are_known_only_wide_rights_count() -> None:
    """Otherwise somebody would be told that there is nothing."""
    assert scope(("get", "pods", "*"), namespaces=None).namespaces is None
    with pytest.raises(ReviewsUnavailableError, match="namespaces of the cluster are not known"):
        scope(("get", "pods", "a"), namespaces=None)


def test_rights_are_remembered_for_a_minute() -> None:
    """Then a right that was taken away is gone."""
    reviews, clock = FakeReviews(), FakeClock()
    reviews.grants = {("amy", "get", "pods", "a")}

    async def scenario() -> None:
        rights = ViewerRights(reviews, lambda: NAMES, clock=clock.clock())
        assert (await rights.scope(AMY)).namespaces == frozenset("a")
        asked = len(reviews.asked)
        reviews.grants.clear()
        assert (await rights.scope(AMY)).namespaces == frozenset("a")
        assert len(reviews.asked) == asked
        clock.now += KNOWN_SECONDS
        assert await rights.scope(AMY) == NOTHING

    asyncio.run(scenario())


def test_rights_of_one_are_not_those_of_another() -> None:
    """Not even of the same name with other groups."""
    reviews = FakeReviews()
    reviews.grants = {("team-a", "get", "pods", "*")}

    async def scenario() -> None:
        rights = ViewerRights(reviews, lambda: NAMES)
        assert (await rights.scope(UserIdentity(user="amy", groups=("team-a",)))).namespaces is None
        assert await rights.scope(AMY) == NOTHING

    asyncio.run(scenario())


def test_rights_of_one_person_are_asked_about_once_at_a_time() -> None:
    """However many pages are opened; one who leaves takes nothing from the others."""
    reviews = FakeReviews()
    reviews.grants = {("amy", "get", "pods", "*"), ("amy", "get", "events", "*")}

    async def scenario() -> None:
        rights = ViewerRights(reviews, lambda: NAMES)
        tasks = [asyncio.create_task(rights.scope(AMY)) for _ in range(20)]
        await asyncio.sleep(0)
        tasks.pop().cancel()
        assert {found.namespaces for found in await asyncio.gather(*tasks)} == {None}

    asyncio.run(scenario())
    assert len(reviews.asked) == 3  # nodes, pods and events


@pytest.mark.parametrize("fails", [True, False])
def test_a_question_that_nobody_waits_for_ends_quietly(*, fails: bool) -> None:
    """Whether it fails or is given up when the program ends."""
    reviews, noticed = FakeReviews(), list[object]()
    reviews.error, reviews.hanging = UnreachableError("refused", sent=False), not fails

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: noticed.append(context))
        asking = asyncio.create_task(ViewerRights(reviews, lambda: NAMES).scope(AMY))
        await asyncio.sleep(0)
        asking.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task(), asking}:
            if not fails:
                task.cancel()
            await asyncio.wait([task])
        await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()
    assert noticed == []


def test_after_one_failure_nothing_more_is_asked() -> None:
    """The API server has trouble enough."""

    class Failing(FakeReviews):
        async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
            if len(self.asked) == 30:
                self.asked.append({})
                raise UnreachableError("refused", sent=False)
            return await super().create(path, body, **options)

    reviews, names = Failing(), {f"n{number}" for number in range(500)}

    async def scenario() -> None:
        with pytest.raises(ReviewsUnavailableError):
            await ViewerRights(reviews, lambda: names).scope(AMY)
        for _ in range(200):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert 30 < len(reviews.asked) <= 30 + 2 * AT_ONCE  # those that were under way


def test_one_right_that_cannot_be_reviewed_grants_nothing_at_all() -> None:
    """A part of a scope would read as the whole, and is not remembered."""
    reviews = FakeReviews()
    reviews.grants = {("amy", "get", "pods", "a")}

    async def scenario() -> None:
        rights = ViewerRights(reviews, lambda: NAMES)
        reviews.error = UnreachableError("refused", sent=False)
        with pytest.raises(ReviewsUnavailableError):
            await rights.scope(AMY)
        reviews.error = None
        assert (await rights.scope(AMY)).namespaces == frozenset("a")

    asyncio.run(scenario())


def test_many_namespaces_are_asked_about_a_few_at_a_time() -> None:
    """Each once for pods."""

    class Counting(FakeReviews):
        now = most = 0

        async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return await super().create(path, body, **options)
            finally:
                self.now -= 1

    reviews = Counting()
    reviews.grants = {("amy", "get", "pods", "n7")}
    names = {f"n{number}" for number in range(500)}

    async def scenario() -> None:
        found = await ViewerRights(reviews, lambda: names).scope(AMY)
        assert found.namespaces == frozenset({"n7"})

    asyncio.run(scenario())
    assert reviews.most <= AT_ONCE
    of_pods = [
        review["spec"]["resourceAttributes"]["namespace"]
        for review in reviews.asked
        if review["spec"]["resourceAttributes"]["resource"] == "pods"
    ]
    assert sorted(of_pods) == sorted({"", *names})
