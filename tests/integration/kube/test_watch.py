"""Pictures of a kind over real sockets, through everything that servers and networks do."""

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
import uvloop

from kube.client import Client
from kube.config import Access
from kube.watch import LONGEST_PAUSE, WatchHealth, follow
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer, StreamedLists
from tests.integration.kube.watched import NODES, SOURCE, Picture, Watched, watching

EVERY_WAY = pytest.mark.parametrize(
    ("streamed", "lists"),
    [
        pytest.param(StreamedLists.SERVED, 0, id="streamed"),
        pytest.param(StreamedLists.GATE_OFF, 1, id="gate-off"),
        pytest.param(StreamedLists.OLD_ETCD, 1, id="old-etcd"),
    ],
)


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(asyncio.new_event_loop, id="asyncio"),
        pytest.param(uvloop.new_event_loop, id="uvloop"),
    ],
)
@EVERY_WAY
def test_changes_are_seen(
    streamed: StreamedLists, lists: int, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """However the server lists, the picture begins whole and follows each change."""

    async def scenario(watched: Watched) -> None:
        watched.add("c")
        await watched.until("a", "b", "c")
        watched.remove("a")
        await watched.until("b", "c")
        watched.server.objects.patch(
            parsed(f"{NODES}/b"),
            "application/merge-patch+json",
            b'{"metadata":{"labels":{"gpu":"A100"}}}',
        )
        await watched.until_true(lambda: watched.pictures[-1]["b"].metadata.labels is not None)

    watched = watching(scenario, streamed=streamed, loop=loop)

    assert watched.queries("watch").count(None) == lists
    assert watched.pulse.synced
    assert watched.pulse.failures == 0


def test_a_picture_never_changes() -> None:
    """A reader that holds a picture sees neither later changes nor a way to edit it."""

    async def scenario(watched: Watched) -> None:
        held = watched.pictures[-1]
        watched.add("c")
        await watched.until("a", "b", "c")
        assert set(held) == {"a", "b"}
        assert not hasattr(held, "__setitem__")

    watching(scenario)


def test_changes_that_arrive_together_are_published_together() -> None:
    """A burst costs one picture, not one for each event."""

    async def scenario(watched: Watched) -> None:
        before = len(watched.pictures)
        watched.add(*(f"n{i}" for i in range(100)))
        await watched.until("a", "b", *(f"n{i}" for i in range(100)))
        assert len(watched.pictures) - before <= 3

    watching(scenario)


@EVERY_WAY
def test_a_closed_stream_is_resumed(streamed: StreamedLists, lists: int) -> None:
    """After its timeoutSeconds a watch goes on where it was, without a list."""

    async def scenario(watched: Watched) -> None:
        watched.time.now += 400
        watched.server.close_streams()
        watched.add("c")
        await watched.until("a", "b", "c")

    watched = watching(scenario, streamed=streamed)

    assert watched.queries("watch").count(None) == lists
    assert watched.queries("resourceVersion")[-1] == "102"
    assert watched.queries("sendInitialEvents")[-1] is None


def test_a_bookmark_moves_the_place_to_resume() -> None:
    """Resuming after a bookmark survives a compaction that the last change does not."""

    async def scenario(watched: Watched) -> None:
        pods = parsed("/api/v1/namespaces/x/pods")
        watched.server.objects.create(pods, {"metadata": {"name": "unrelated"}})
        watched.server.bookmark()
        last_message = watched.pulse.last_message
        watched.time.now += 400
        await watched.until_true(lambda: watched.pulse.last_message != last_message)
        watched.server.compact()
        watched.server.close_streams()
        watched.add("c")
        await watched.until("a", "b", "c")

    watched = watching(scenario)

    assert watched.pulse.failures == 0
    assert watched.queries("resourceVersion")[-1] == "103"


def test_a_forgotten_version_leads_to_a_new_list() -> None:
    """410 inside the stream: list again at once, and what was deleted meanwhile is gone."""

    async def scenario(watched: Watched) -> None:
        watched.time.now += 400
        watched.server.close_streams()
        watched.remove("a")
        watched.add("c")
        watched.server.compact()
        await watched.until("b", "c")

    watched = watching(scenario)

    assert watched.pulse.lists == 2
    assert watched.time.slept == []
    assert all(watched.pictures), "the old picture stays until the new one is whole"


def test_a_list_of_many_pages() -> None:
    """Without streaming a list is read page by page, and one that is not the first so published."""

    async def scenario(watched: Watched) -> None:
        names = [f"n{i:03}" for i in range(250)]
        watched.server.close_streams()
        watched.add(*names)
        watched.server.compact()
        await watched.until("a", "b", *names)

    watched = watching(scenario, streamed=StreamedLists.GATE_OFF)

    assert [len(picture) for picture in watched.pictures] == [2, 100, 200, 252]
    assert sum(token is not None for token in watched.queries("continue")) == 2


@pytest.mark.parametrize(
    ("sync_within", "closed"),
    [
        pytest.param(60.0, True, id="closed-too-early"),
        pytest.param(0.05, False, id="too-slow"),
    ],
)
def test_a_streamed_list_that_never_ends_is_given_up(*, sync_within: float, closed: bool) -> None:
    """What a stream said before its list was complete is not believed; pages are read instead."""

    async def play() -> Watched:
        async with ApiServer() as server:
            server.streamed_lists = StreamedLists.STUCK
            watched = Watched(server)
            watched.add("a", "b")
            source = dataclasses.replace(SOURCE, sync_within=sync_within)
            following = asyncio.create_task(watched.follow(source))
            await watched.until_true(lambda: watched.pulse.last_message is not None)
            assert watched.pictures == []
            if closed:
                server.close_streams()
            await watched.until("a", "b")
            following.cancel()
            await asyncio.wait([following])
        return watched

    watched = asyncio.run(play())

    assert watched.pulse.lists == 1
    assert "100" in watched.queries("limit")


def test_a_list_that_is_complete_does_not_run_out_of_time() -> None:
    """Once complete, a streamed list goes on as a watch for as long as the server lets it."""

    async def play() -> Watched:
        async with ApiServer() as server:
            watched = Watched(server)
            watched.add("a")
            source = dataclasses.replace(SOURCE, sync_within=0.05)
            following = asyncio.create_task(watched.follow(source))
            await watched.until("a")
            await asyncio.sleep(0.1)
            watched.add("b")
            await watched.until("a", "b")
            following.cancel()
            await asyncio.wait([following])
        return watched

    watched = asyncio.run(play())

    assert len(watched.server.requests) == 1


def test_a_list_whose_watch_has_expired_is_paced() -> None:
    """A server that forgets the version of its own list is not asked for lists without a pause."""

    async def scenario(watched: Watched) -> None:
        expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
        before = None
        for failures in (1, 2):
            await watched.until_true(
                # The server learns later that the one before has ended.
                lambda before=before: watched.server.streams[-1:] not in ([], [before])  # type: ignore[misc]
            )
            before = watched.server.streams[-1]
            watched.server.inject(expired)
            await watched.until_true(
                lambda failures=failures: watched.pulse.failures == failures  # type: ignore[misc]
            )

    watched = watching(scenario)

    assert watched.time.slept[:2] == [0.75, 1.5]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"type": "ERROR", "object": {"kind": "Status", "code": 500}}, id="error"),
        pytest.param({"type": "RENAMED", "object": {}}, id="unknown-type"),
        pytest.param({"type": "ADDED"}, id="no-object"),
        pytest.param({"type": "ADDED", "object": {"metadata": {}}}, id="no-version"),
    ],
)
def test_a_stream_that_talks_nonsense_is_left(event: dict[str, object]) -> None:
    """After an event that cannot be followed the kind is listed again, after a pause."""

    async def scenario(watched: Watched) -> None:
        watched.server.inject(event)
        await watched.until_true(lambda: watched.pulse.lists == 2)
        watched.add("c")
        await watched.until("a", "b", "c")

    watched = watching(scenario)

    assert watched.pulse.failures == 1
    assert watched.time.slept == [0.75]


@pytest.mark.parametrize("streamed", [StreamedLists.SERVED, StreamedLists.GATE_OFF])
def test_an_object_that_is_not_kept_counts_as_absent(streamed: StreamedLists) -> None:
    """From the list on, when it changes into one that is kept, and when it changes back."""
    source = dataclasses.replace(
        SOURCE, keeps=lambda node: (node.metadata.labels or {}).get("gpu") != "none"
    )

    def patch(server: ApiServer, labels: str) -> None:
        body = f'{{"metadata":{{"labels":{labels}}}}}'.encode()
        server.objects.patch(parsed(f"{NODES}/c"), "application/merge-patch+json", body)

    async def scenario(watched: Watched) -> None:
        watched.server.objects.create(
            parsed(NODES), {"metadata": {"name": "c", "labels": {"gpu": "none"}}}
        )
        watched.add("d")
        await watched.until("a", "b", "d")
        later = Watched(watched.server)
        following = asyncio.create_task(later.follow(source))
        await later.until("a", "b", "d")
        following.cancel()
        await asyncio.wait([following])
        assert [set(picture) for picture in later.pictures] == [{"a", "b", "d"}]
        patch(watched.server, '{"gpu":"A100"}')
        await watched.until("a", "b", "c", "d")
        patch(watched.server, '{"gpu":"none"}')
        await watched.until("a", "b", "d")
        watched.remove("c")
        watched.remove("d")
        await watched.until("a", "b")

    watched = watching(scenario, streamed=streamed, source=source)
    assert watched.pulse.undecodable == 0
    assert all("c" not in p or p["c"].metadata.labels == {"gpu": "A100"} for p in watched.pictures)


def test_an_object_that_is_not_understood_stays_as_it_was() -> None:
    """One bad object is counted, keeps its last good form, and does not hold up the others."""

    async def scenario(watched: Watched) -> None:
        watched.server.objects.patch(
            parsed(f"{NODES}/a"), "application/merge-patch+json", b'{"metadata":{"labels":7}}'
        )
        watched.add("c")
        await watched.until("a", "b", "c")

    watched = watching(scenario)

    assert watched.pulse.undecodable == 1
    assert watched.pictures[-1]["a"].metadata.labels is None


def test_a_server_that_is_down_is_waited_for() -> None:
    """While nothing answers, the picture stays and the pauses grow to half a minute."""

    async def scenario(watched: Watched) -> None:
        watched.server.answer_next(503, times=8)
        watched.time.now += 400
        watched.server.close_streams()
        await watched.until_true(lambda: watched.pulse.failures == 8)
        watched.add("c")
        await watched.until("a", "b", "c")

    watched = watching(scenario)

    assert watched.time.slept == [0.75, 1.5, 3, 6, 12, 22.5, 22.5, 22.5]
    assert max(watched.time.slept) <= LONGEST_PAUSE
    assert all(watched.pictures)


def test_the_age_of_the_last_word() -> None:
    """The pulse tells for how many seconds the server has been silent."""
    pulse = WatchHealth()
    unheard = pulse.age(5.0)

    pulse.last_message = 2.0

    assert unheard is None
    assert pulse.age(5.0) == 3.0


def test_a_fault_of_the_reader_is_not_hidden() -> None:
    """What ``publish`` raises ends the watch: it is a bug, and not the server's."""

    def publish(_picture: Picture) -> None:
        raise ZeroDivisionError

    async def play() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            await follow(client, SOURCE, publish)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(play())
