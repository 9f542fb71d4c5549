"""Rotation is safe at every moment, whoever is stopped, killed, doubled or late."""

import itertools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.check import Expected, check_pair, issuer_of
from certs.pem import certificates
from certs.rotation_controller import RotationController, Round, StoredSecret
from certs.rotation_policy import Rotation
from certs.secret_codec import REQUEST, SecretState, decode_secret, rotation_state
from certs.status import RotationPhase, phase
from kube.errors import ConflictError
from tests.fakes.certificates import LIFETIMES, POLICY, World

SETTLE = LIFETIMES.settle.total_seconds()
LATE = 4 * LIFETIMES.leaf.total_seconds()


@dataclass(slots=True)
class Drama:
    """Two writers that believe to lead, and two replicas that load when they like."""

    world: World = field(default_factory=World)
    writers: list[RotationController] = field(default_factory=list)
    rounds: list[Coroutine[None, None, Round] | None] = field(default_factory=lambda: [None, None])
    served: list[x509.Certificate | None] = field(default_factory=lambda: [None, None])

    def __post_init__(self) -> None:
        self.writers = [self.world.writer(), self.world.writer()]

    @property
    def store(self) -> SecretState:
        held = self.world.secrets.held
        return decode_secret(held.data, held.annotations) if held else SecretState()

    def act(self, who: int) -> bool:
        """Let a writer run to its next effect; say whether its round is over."""
        running = self.rounds[who] or self.writers[who].round()
        self.rounds[who] = running
        try:
            running.send(None)
        except (StopIteration, ConflictError):
            self.rounds[who] = None
        self.judge()
        return self.rounds[who] is None

    def kill(self, who: int) -> None:
        running, self.rounds[who] = self.rounds[who], None
        if running is not None:
            running.close()
        self.writers[who] = self.world.writer()

    def load(self, replica: int) -> None:
        leaf = self.store.leaf
        expected = Expected(now=self.world.time.wall)
        if leaf is not None and not check_pair(leaf, expected):
            self.served[replica] = certificates(leaf.certificate)[0]
        self.judge()

    def wait(self, seconds: float) -> None:
        self.world.time.seconds += seconds
        self.judge()

    def ask(self, rotation: Rotation) -> None:
        held = self.world.secrets.held
        if held is not None:
            asked = {**held.annotations, REQUEST: rotation.value}
            version = f"{held.version}+"
            self.world.secrets.held = StoredSecret(
                version=version, data=held.data, annotations=asked
            )

    def lose(self) -> None:
        self.world.secrets.held = None

    def judge(self) -> None:
        """Whatever is served verifies against every bundle that an API server may still hold."""
        now = self.world.time.wall
        for leaf in self.served:
            if leaf is not None and leaf.not_valid_after_utc >= now:
                for bundle in self.bundles():
                    assert verifies(leaf, bundle)

    def bundles(self) -> Iterator[bytes]:
        edge = self.world.time.seconds - SETTLE
        for past in self.world.registrations.history.values():
            yield past[-1][1]
            yield from (
                old for (_, old), (end, _) in itertools.pairwise(past) if old and end > edge
            )

    def finish(self, who: int) -> None:
        while not self.act(who):
            pass

    def work(self, who: int, rounds: int = 6) -> None:
        """Let one writer go on undisturbed; nobody loads anything."""
        for _ in range(rounds):
            self.finish(who)
            self.wait(SETTLE)

    def calm(self) -> None:
        """Let one healthy writer and the replicas run for a while."""
        for _ in range(6):
            self.work(0, rounds=1)
            self.load(0)
            self.load(1)


@cache
def verifies(leaf: x509.Certificate, bundle: bytes) -> bool:
    return issuer_of(leaf, certificates(bundle)) is not None


ACTS = {
    "first writer": lambda drama: drama.act(0),
    "second writer": lambda drama: drama.act(1),
    "first writer ends its round": lambda drama: drama.finish(0),
    "second writer works on": lambda drama: drama.work(1),
    "kill the first": lambda drama: drama.kill(0),
    "kill the second": lambda drama: drama.kill(1),
    "first replica loads": lambda drama: drama.load(0),
    "second replica loads": lambda drama: drama.load(1),
    "half a leaf's life": lambda drama: drama.wait(LIFETIMES.leaf.total_seconds() / 2),
    "ask for a leaf": lambda drama: drama.ask(Rotation.LEAF),
    "ask for an authority": lambda drama: drama.ask(Rotation.CA),
    "lose the Secret": lambda drama: drama.lose(),
}


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(ACTS)), max_size=40))
def test_every_leaf_served_verifies_against_every_bundle(script: list[str]) -> None:
    """No order of two writers, crashes, late replicas and lost Secrets breaks verification."""
    drama = Drama()
    drama.calm()

    for line in script:
        ACTS[line](drama)

    drama.calm()
    assert all(leaf is not None for leaf in drama.served)


@pytest.mark.parametrize("rotation", Rotation)
def test_a_writer_may_be_killed_at_any_effect(rotation: Rotation) -> None:
    """A rotation cut between any two effects is safe and is completed by the next writer."""
    for effects in range(45):
        drama = Drama()
        drama.calm()
        before = drama.served[0]
        drama.ask(rotation)

        for _ in range(effects):
            if drama.act(0):
                drama.wait(SETTLE)
                drama.load(0)
        drama.kill(0)
        drama.calm()

        assert drama.served[0] not in {before, None}
        assert (drama.store.request, drama.store.next) == (None, None)


def ending(drama: Drama) -> None:
    drama.ask(Rotation.CA)
    drama.work(0)
    drama.wait(LATE)
    drama.work(1, rounds=2)


BEGINNINGS = {
    "asked": lambda drama: drama.ask(Rotation.CA),
    "lost": lambda drama: drama.lose(),
    "overlap-ends": ending,
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_writer_may_sleep_at_any_effect(begin: Callable[[Drama], None]) -> None:
    """A writer that wakes up after another finished a rotation undoes nothing of it."""
    for rounds, effects in itertools.product(range(3), range(1, 12)):
        drama = Drama()
        drama.calm()
        begin(drama)
        drama.work(1, rounds=rounds)

        for _ in range(effects):
            drama.act(0)
        drama.work(1, rounds=1)
        drama.ask(Rotation.CA)
        drama.work(1)
        drama.load(0)
        drama.work(0)

        assert drama.served[0] != drama.served[1]


@pytest.mark.parametrize("pause", [0.0, SETTLE / 4, SETTLE], ids=["none", "short", "long"])
def test_a_leaf_waits_until_its_authority_was_seen_everywhere(pause: float) -> None:
    """However fast rounds and loads follow each other, no API server meets a leaf too early."""
    drama = Drama()
    drama.calm()
    drama.ask(Rotation.CA)

    for _ in range(20):
        drama.finish(0)
        drama.load(0)
        drama.wait(pause)

    switched = drama.served[0] != drama.served[1]
    assert switched == (pause > 0)


def test_a_replica_that_never_loads_again_is_waited_for() -> None:
    """The old authority is trusted until the last leaf it signed has expired, and not longer."""
    drama = Drama()
    drama.calm()
    drama.ask(Rotation.CA)
    drama.work(0)
    overlapping = phase(rotation_state(drama.store, POLICY.names))

    while drama.world.time.seconds < LATE:
        drama.work(0, rounds=1)

    assert overlapping is RotationPhase.OVERLAP
    assert phase(rotation_state(drama.store, POLICY.names)) is RotationPhase.STEADY
