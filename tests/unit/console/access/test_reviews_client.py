"""Reviews of tokens and rights: what is granted, and what is not where nobody answers."""

import asyncio
import contextlib
import gc
import json
from collections.abc import Awaitable, Callable

import pytest

from console.access.identity import UserIdentity
from console.access.reviews_client import (
    KNOWN_SECONDS,
    LONGEST_TOKEN,
    MOST_WAITING,
    UNKNOWN_SECONDS,
    ReviewsUnavailableError,
    Right,
    TokenReviewer,
    review_access,
    review_token,
)
from kube.errors import ApiError, UnreachableError
from tests.fakes.kube_clock import FakeClock
from tests.fakes.reviews import FakeReviews

AMY = UserIdentity(user="amy", uid="uid-amy", groups=("a",), extra=(("k", ("v",)),))


def server() -> FakeReviews:
    reviews = FakeReviews()
    reviews.add_user("t-amy", "amy", ("get", "pods", "a"), groups=["a"], extra={"k": ["v"]})
    return reviews


def test_who_holds_a_token() -> None:
    """With all that the API server says of them; a stranger is nobody."""
    reviews = server()

    assert asyncio.run(review_token(reviews, "t-amy")) == AMY
    assert asyncio.run(review_token(reviews, "t-bob")) is None
    assert "audiences" not in reviews.asked[0]["spec"]


def test_a_token_is_for_one_audience() -> None:
    """One for another, or for nobody in particular, is no token of ours."""
    reviews = server()
    reviews.audience = "vgpu-console"

    assert asyncio.run(review_token(reviews, "t-amy", "vgpu-console")) == AMY
    assert asyncio.run(review_token(reviews, "t-amy", "other")) is None
    assert asyncio.run(review_token(reviews, "t-amy")) is None


@pytest.mark.parametrize("audiences", [None, [], ["other"]])
def test_a_server_that_knows_no_audiences_authenticates_nobody(audiences: object) -> None:
    """It says yes to every token that is valid for itself."""
    reviews = server()
    status = {"authenticated": True, "user": {"username": "amy"}, "audiences": audiences}
    reviews.raw = json.dumps({"status": status}).encode()

    assert asyncio.run(review_token(reviews, "t-amy", "vgpu-console")) is None


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": {"username": "amy"}},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": "a" * 5000}},
        {"authenticated": True, "user": {"username": "amy", "groups": ["g"] * 5000}},
    ],
)
def test_whom_the_answer_does_not_name_is_nobody(status: object) -> None:
    """Authenticated or not."""
    reviews = server()
    reviews.raw = json.dumps({"status": status}).encode()

    assert asyncio.run(review_token(reviews, "t-amy")) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"status": {"authenticated": "yes"}}',
        b'{"status": {"allowed": 1}}',
        b'{"status":' + b"[" * 100_000,
        b"\xff",
    ],
)
@pytest.mark.parametrize("kind", ["token", "access"])
def test_an_answer_that_is_none_grants_nothing(answer: bytes, kind: str) -> None:
    """It is an error, not a refusal that would be remembered."""
    reviews = server()
    reviews.raw = answer
    asking = (
        review_token(reviews, "t-amy")
        if kind == "token"
        else review_access(reviews, AMY, Right("get", "pods", "a"))
    )
    with contextlib.suppress(ReviewsUnavailableError):
        assert asyncio.run(asking) in {None, False}


@pytest.mark.parametrize(
    "error",
    [
        ApiError(403, "Forbidden", "tokenreviews is forbidden"),
        ApiError(500, "InternalError", "etcd"),
        UnreachableError("refused", sent=False),
    ],
)
def test_a_server_that_cannot_be_asked_grants_nothing(error: Exception) -> None:
    """The text says why."""
    reviews = server()
    assert isinstance(error, (ApiError, UnreachableError))
    reviews.error = error

    with pytest.raises(ReviewsUnavailableError, match="the API server cannot be asked"):
        asyncio.run(review_token(reviews, "t-amy"))
    with pytest.raises(ReviewsUnavailableError, match="the API server cannot be asked"):
        asyncio.run(review_access(reviews, AMY, Right("get", "pods", "a")))


def test_a_right_is_asked_for_as_it_is_held() -> None:
    """With groups and extra, which authorizers may look at."""
    reviews = server()

    assert asyncio.run(review_access(reviews, AMY, Right("get", "pods", "a")))
    assert not asyncio.run(review_access(reviews, AMY, Right("get", "pods", "b")))
    assert not asyncio.run(review_access(reviews, AMY, Right("get", "pods")))
    assert reviews.asked[0]["spec"] == {
        "user": "amy",
        "uid": "uid-amy",
        "groups": ["a"],
        "extra": {"k": ["v"]},
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"},
    }


def test_a_denial_weighs_more_than_a_permission() -> None:
    """As the API says."""
    reviews = server()
    reviews.raw = b'{"status": {"allowed": true, "denied": true}}'

    assert not asyncio.run(review_access(reviews, AMY, Right("get", "pods", "a")))


def test_a_review_is_one_of_its_group() -> None:
    """An API server takes no other."""
    reviews = server()
    asyncio.run(review_token(reviews, "t-amy"))
    asyncio.run(review_access(reviews, AMY, Right("get", "pods", "a")))

    assert [(each["apiVersion"], each["kind"]) for each in reviews.asked] == [
        ("authentication.k8s.io/v1", "TokenReview"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
    ]


def test_the_order_of_extra_makes_nobody_another_person() -> None:
    """Their rights would be asked about twice."""
    reviews = server()
    found = []
    for extra in ({"a": ["1"], "b": ["2"]}, {"b": ["2"], "a": ["1"]}):
        reviews.add_user("t-amy", "amy", extra=extra)
        found.append(asyncio.run(review_token(reviews, "t-amy")))

    assert found[0] == found[1]


Scenario = Callable[[TokenReviewer, FakeReviews, FakeClock], Awaitable[None]]


def run(scenario: Scenario) -> None:
    clock, reviews = FakeClock(), server()

    async def play() -> None:
        await scenario(TokenReviewer(reviews, clock=clock.clock()), reviews, clock)

    asyncio.run(play())


def test_a_token_is_remembered_for_a_while() -> None:
    """So is one that nobody holds, for a shorter one."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        for _ in range(3):
            assert await reviewer.identity("t-amy") == AMY
            assert await reviewer.identity("t-bob") is None
        assert len(reviews.asked) == 2
        clock.now += UNKNOWN_SECONDS
        await reviewer.identity("t-amy")
        await reviewer.identity("t-bob")
        assert len(reviews.asked) == 3
        clock.now += KNOWN_SECONDS
        await reviewer.identity("t-amy")
        assert len(reviews.asked) == 4

    run(scenario)


@pytest.mark.parametrize(
    ("token", "seconds"), [("t-amy", KNOWN_SECONDS), ("t-bob", UNKNOWN_SECONDS)]
)
def test_what_is_remembered_has_its_own_time(token: str, seconds: float) -> None:
    """A token that nobody holds may be one that is not known yet."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        await reviewer.identity(token)
        clock.now += seconds - 0.1
        await reviewer.identity(token)
        assert len(reviews.asked) == 1
        clock.now += 0.1
        await reviewer.identity(token)
        assert len(reviews.asked) == 2

    run(scenario)


def test_a_token_that_was_refused_is_that_of_nobody() -> None:
    """Also while it is remembered."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock, reviews
        for token, expected in (("t-amy", AMY), ("t-bob", None)):
            assert reviewer.known(token) is None
            assert await reviewer.identity(token) == expected
            assert reviewer.known(token) == expected

    run(scenario)


@pytest.mark.parametrize("token", ["t", "t" * LONGEST_TOKEN])
def test_a_token_may_be_short_or_long(token: str) -> None:
    """As far as a request can carry it."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock
        reviews.add_user(token, "amy")
        found = await reviewer.identity(token)
        assert found is not None
        assert found.user == "amy"

    run(scenario)


@pytest.mark.parametrize("fails", [True, False])
def test_a_question_that_nobody_waits_for_ends_quietly(*, fails: bool) -> None:
    """Whether it fails or is given up when the program ends."""
    noticed: list[object] = []

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: noticed.append(context))
        reviews.error, reviews.hanging = UnreachableError("refused", sent=False), not fails
        asking = asyncio.create_task(reviewer.identity("t-amy"))
        await asyncio.sleep(0)
        asking.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task(), asking}:
            if not fails:
                task.cancel()
            await asyncio.wait([task])
        await asyncio.sleep(0)

    run(scenario)
    gc.collect()
    assert noticed == []


def test_a_revoked_token_ends() -> None:
    """Once what was remembered is too old."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        assert await reviewer.identity("t-amy") == AMY
        reviews.users.clear()
        clock.now += KNOWN_SECONDS
        assert await reviewer.identity("t-amy") is None

    run(scenario)


def test_an_error_is_not_remembered() -> None:
    """The next question is asked again."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock
        reviews.error = UnreachableError("refused", sent=False)
        with pytest.raises(ReviewsUnavailableError):
            await reviewer.identity("t-amy")
        reviews.error = None
        assert await reviewer.identity("t-amy") == AMY

    run(scenario)


def test_one_token_is_asked_about_once_at_a_time() -> None:
    """However many bring it; one who leaves takes nothing from the others."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock
        tasks = [asyncio.create_task(reviewer.identity("t-amy")) for _ in range(20)]
        await asyncio.sleep(0)
        tasks.pop().cancel()
        assert await asyncio.gather(*tasks) == [AMY] * 19
        assert len(reviews.asked) == 1

    run(scenario)


def test_more_tokens_than_can_be_asked_about_are_an_error() -> None:
    """A server that hangs fills no memory."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock
        reviews.hanging = True
        tasks = [asyncio.create_task(reviewer.identity(f"t{n}")) for n in range(MOST_WAITING + 1)]
        await asyncio.sleep(0.01)
        with pytest.raises(ReviewsUnavailableError, match="too many tokens"):
            tasks[-1].result()
        for task in tasks[:-1]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario)


@pytest.mark.parametrize("token", ["", "a" * (LONGEST_TOKEN + 1), "a\nb", "a\0b", "é", "a\x7f"])
def test_what_is_no_token_is_not_sent_on(token: str) -> None:
    """Nobody holds it."""

    async def scenario(reviewer: TokenReviewer, reviews: FakeReviews, clock: FakeClock) -> None:
        del clock
        assert await reviewer.identity(token) is None
        assert not reviews.asked

    run(scenario)
