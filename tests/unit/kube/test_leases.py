"""At most one leader, and a quick successor."""

import asyncio

from kube.leases import Election, LeaseCandidate
from tests.fakes.api_objects import Objects, parsed
from tests.fakes.direct_store import DirectStore, Line
from tests.fakes.kube_clock import FakeClock


def candidate(identity: str) -> LeaseCandidate:
    return LeaseCandidate(namespace="vgpu", name="leader", identity=identity)


LEASE = parsed(candidate("").path)


class Replica:
    """One process: its own clock, its own line to the server."""

    def __init__(self, name: str, objects: Objects, time: FakeClock) -> None:
        self.store = DirectStore(objects, time)
        self.election = Election(self.store, candidate(name), clock=time.clock())

    def round(self) -> bool:
        asyncio.run(self.election.round())
        return self.election.is_leader


def test_the_first_leads_and_the_second_waits() -> None:
    """A free Lease is taken at once, a held one is left alone."""
    objects, time = Objects(), FakeClock()
    a, b = Replica("a", objects, time), Replica("b", objects, time)

    led = [a.round(), b.round()]

    assert led == [True, False]
    assert (a.election.term, b.election.term) == (0, None)
    assert a.election.elected.is_set()
    assert not b.election.elected.is_set()


def test_a_renewed_lease_is_never_taken() -> None:
    """However long it lasts, a term that is renewed goes on under its number."""
    objects, time = Objects(), FakeClock()
    a, b = Replica("a", objects, time), Replica("b", objects, time)

    for _ in range(50):
        assert a.round()
        assert not b.round()
        time.now += 2

    assert a.election.term == 0


def test_a_leader_that_cannot_renew_stops_before_another_starts() -> None:
    """It stops by its own clock after ten seconds; the other waits for fifteen."""
    objects, time = Objects(), FakeClock()
    a, b = Replica("a", objects, time), Replica("b", objects, time)
    a.round()
    b.round()
    a.store.line = Line.REQUEST_LOST

    history = []
    for _ in range(16):
        time.now += 1
        history.append((a.round(), b.round()))

    assert history == [(True, False)] * 9 + [(False, False)] * 6 + [(False, True)]
    assert b.election.term == 1
    assert not a.election.elected.is_set()


def test_wall_clocks_do_not_matter() -> None:
    """A replica whose clock is a day ahead neither steals nor loses a term."""
    objects = Objects()
    late, early = FakeClock(), FakeClock()
    early.skew = 86400.0
    a, b = Replica("a", objects, late), Replica("b", objects, early)

    led = []
    for _ in range(5):
        led.append((a.round(), b.round()))
        late.now += 3
        early.now += 3

    assert led == [(True, False)] * 5


def test_a_restarted_process_does_not_inherit() -> None:
    """The same name in a new process waits until the old term has surely ended."""
    objects, time = Objects(), FakeClock()
    Replica("a", objects, time).round()
    again = Replica("a", objects, time)

    led = [again.round()]
    time.now += 15.1
    led.append(again.round())

    assert led == [False, True]
    assert again.election.term == 1


def test_who_replaces_a_deleted_lease_waits() -> None:
    """Its leader may not have noticed, so the new holder leads only when that term has ended."""
    objects, time = Objects(), FakeClock()
    a, b = Replica("a", objects, time), Replica("b", objects, time)
    a.round()
    b.round()
    objects.delete(LEASE)

    led = []
    for _ in range(9):
        led.append((b.round(), a.election.is_leader))
        time.now += 2

    assert led == [(False, True)] * 5 + [(False, False)] * 3 + [(True, False)]
    assert b.election.term == 1


def test_a_term_is_counted_from_before_the_renewal_was_sent() -> None:
    """A slow answer shortens what is left of the term: others may have seen the write long ago."""
    objects, time = Objects(), FakeClock()
    a = Replica("a", objects, time)
    a.store.latency = 1.0

    a.round()  # two seconds to read, two to write
    left = [a.election.is_leader]
    time.now += 8
    left.append(a.election.is_leader)

    assert left == [True, False]


def test_a_lease_that_others_annotate_stays_ours() -> None:
    """A change of version that leaves holder and term alone ends nothing."""
    objects, time = Objects(), FakeClock()
    a = Replica("a", objects, time)
    a.round()

    objects.patch(LEASE, "application/merge-patch+json", b'{"metadata":{"labels":{"a":"b"}}}')

    assert a.round()
    assert a.election.term == 0
    assert objects.read(LEASE)["metadata"]["labels"] == {"a": "b"}


def test_a_cancelled_run_hands_over_at_once() -> None:
    """On the way out the Lease is released, and the next replica need not wait."""
    objects, time = Objects(), FakeClock()
    a, b = Replica("a", objects, time), Replica("b", objects, time)

    async def lead_and_stop() -> bool:
        running = asyncio.create_task(a.election.run())
        await a.election.elected.wait()
        running.cancel()
        await asyncio.wait([running])
        return running.cancelled()

    stopped = asyncio.run(lead_and_stop())

    assert stopped
    assert not a.election.is_leader
    assert b.round()
    assert b.election.term == 1


def test_one_who_never_led_releases_nothing() -> None:
    """Leaving as a follower writes nothing."""
    objects, time = Objects(), FakeClock()
    a, b = Replica("a", objects, time), Replica("b", objects, time)
    a.round()
    version = objects.version

    async def follow_and_stop() -> None:
        running = asyncio.create_task(b.election.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(follow_and_stop())

    assert objects.version == version
    assert objects.read(LEASE)["spec"]["holderIdentity"] == "a"
