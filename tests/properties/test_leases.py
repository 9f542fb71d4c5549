"""No schedule of rounds, lost messages, delays and deletions makes two leaders."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from kube.leases import Election, LeaseCandidate
from tests.fakes.api_objects import Objects, parsed
from tests.fakes.direct_store import DirectStore, Line
from tests.fakes.kube_clock import FakeClock

NAMES = ("a", "b", "c")
LEASE = parsed(LeaseCandidate(namespace="n", name="l", identity="").path)

LINES = st.tuples(st.sampled_from(Line), st.floats(min_value=0, max_value=6))
ROUNDS = st.dictionaries(st.sampled_from(NAMES), LINES, min_size=1)
PASSING = st.floats(min_value=0, max_value=20)
DELETION = st.none()

Step = dict[str, tuple[Line, float]] | float | None


class Cluster:
    """Three replicas that have seen the Lease, one of which leads."""

    def __init__(self) -> None:
        self.objects, self.time = Objects(), FakeClock()
        self.stores = {name: DirectStore(self.objects, self.time) for name in NAMES}
        self.elections = {
            name: Election(
                self.stores[name],
                LeaseCandidate(namespace="n", name="l", identity=name),
                clock=self.time.clock(),
            )
            for name in NAMES
        }

    async def play(self, step: Step) -> None:
        match step:
            case dict():
                for name, (line, latency) in step.items():
                    self.stores[name].line = line
                    self.stores[name].latency = latency
                await asyncio.gather(*(self.elections[name].round() for name in step))
            case float():
                self.time.now += step
            case None:
                if LEASE in self.objects.kept:
                    self.objects.delete(LEASE)

    def leaders(self) -> list[tuple[int, str]]:
        terms = [(self.elections[name].term, name) for name in NAMES]
        return [(term, name) for term, name in terms if term is not None]


@settings(max_examples=150)
@given(st.lists(st.one_of(ROUNDS, ROUNDS, PASSING, DELETION), max_size=30))
def test_never_two_leaders_and_no_term_twice(steps: list[Step]) -> None:
    """After each step at most one leads, and, unless a Lease is deleted, its term is its own."""
    cluster = Cluster()
    holders: dict[int, str] = {}

    async def play() -> None:
        for step in [{name: (Line.UP, 0.0)} for name in NAMES] + steps:
            await cluster.play(step)
            leaders = cluster.leaders()
            assert len(leaders) <= 1
            for term, name in leaders if None not in steps else ():
                assert holders.setdefault(term, name) == name

    asyncio.run(play())
