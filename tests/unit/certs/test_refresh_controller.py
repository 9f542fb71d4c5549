"""What keeps a running server's certificate current, look by look."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from certs.check import Expected, check_pair
from certs.issue import authority, leaf
from certs.pem import Pair, certificates
from certs.refresh_controller import (
    POLL_WHILE_INVALID,
    CertificateReason,
    Notice,
    OwnSecret,
    PairFiles,
    ReadPair,
    RefreshController,
    throwaway,
)
from certs.rotation_controller import new_key_material, rotate
from certs.rotation_policy import Rotation
from certs.secret_codec import BUNDLE
from certs.tls_server import ServingPair
from kube.errors import KubeError
from tests.fakes.certificates import LIFETIMES, POLICY, START, KnownReplicas, Time, World

CA = authority(LIFETIMES, new_key_material(START))
GOOD = leaf(CA, POLICY, new_key_material(START)).pair


@dataclass(slots=True)
class Stage:
    """A keeper whose source says whatever the test lets it say."""

    time: Time = field(default_factory=Time)
    offers: list[Pair | Exception | None] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    async def look(self) -> Pair | None:
        offer = self.offers.pop(0)
        if isinstance(offer, Exception):
            raise offer
        return offer

    def keeper(self, look: ReadPair | None = None) -> RefreshController:
        return RefreshController(
            serving=ServingPair(now=lambda: self.time.wall),
            read_pair=look or self.look,
            announce=self.notices.append,
            lifetimes=LIFETIMES,
            clock=self.time.clock,
        )

    @property
    def reasons(self) -> list[CertificateReason]:
        return [notice.reason for notice in self.notices]


def test_a_source_that_fails_costs_nothing() -> None:
    """What is served stays served while the API server or a file is away."""
    stage = Stage(offers=[GOOD, KubeError("away"), OSError("gone"), None])
    keeper = stage.keeper()

    for _ in range(4):
        asyncio.run(keeper.refresh())

    assert keeper.serving.ready


def test_a_faulty_pair_is_announced_once_an_hour() -> None:
    """A poll every few seconds must not become an Event every few seconds."""
    faulty = Pair(certificate=GOOD.certificate, key=b"")
    stage = Stage(offers=[faulty] * 12)
    keeper = stage.keeper()

    for _ in range(12):
        asyncio.run(keeper.refresh())
        stage.time.seconds += 600

    assert stage.reasons == [CertificateReason.RENEW_FAILED] * 2


def test_the_last_days_of_a_certificate_are_announced() -> None:
    """These lifetimes are shorter than seven days, so the warning comes at once."""
    stage = Stage(offers=[GOOD])

    asyncio.run(stage.keeper().refresh())

    assert stage.reasons == [CertificateReason.EXPIRING]
    assert "2026-11-21T12:05:00+00:00" in stage.notices[0].note


def test_one_look_of_the_leader_installs_everything() -> None:
    """From an empty cluster to a served certificate without waiting for the next poll."""
    stage, world = Stage(), World()
    look = OwnSecret(rotation=world.writer(), leading=lambda: True, announce=stage.notices.append)
    keeper = stage.keeper(look)

    asyncio.run(keeper.refresh())

    assert keeper.serving.ready
    assert stage.reasons == [
        CertificateReason.RENEWED,
        CertificateReason.RENEWED,
        CertificateReason.EXPIRING,
    ]


def test_who_does_not_lead_only_reads() -> None:
    """A follower serves what the leader wrote and writes nothing."""
    stage, world = Stage(), World()
    asyncio.run(Stage().keeper(leader(world)).refresh())
    before = (world.secrets.writes, world.registrations.writes)
    follower = OwnSecret(
        rotation=world.writer(), leading=lambda: False, announce=stage.notices.append
    )
    keeper = stage.keeper(follower)

    asyncio.run(keeper.refresh())

    assert keeper.serving.ready
    assert (world.secrets.writes, world.registrations.writes) == before


@pytest.mark.parametrize(
    ("nobody", "installs"),
    [
        pytest.param(True, True, id="nobody-serves"),
        pytest.param(False, False, id="another-may-serve"),
        pytest.param(None, False, id="not-known"),
    ],
)
def test_where_nobody_serves_nobody_waits_for_the_lease(
    *, nobody: bool | None, installs: bool
) -> None:
    """A leader that was killed with all others holds it for a while yet."""
    stage, world = Stage(), World()
    rotation = world.writer(None if nobody is None else KnownReplicas(nobody))
    follower = OwnSecret(rotation=rotation, leading=lambda: False, announce=stage.notices.append)

    asyncio.run(stage.keeper(follower).refresh())

    assert (world.secrets.writes > 0) is installs
    assert (CertificateReason.RENEWED in stage.reasons) is installs


def leader(world: World) -> OwnSecret:
    return OwnSecret(rotation=world.writer(), leading=lambda: True, announce=lambda _: None)


def test_callers_are_known_by_the_authorities_that_sign_or_will() -> None:
    """One that signs no more vouches for nobody: who knows no newer one cannot verify us either."""
    world = World()
    look = leader(world)
    asyncio.run(look())
    first = certificates(look.signing)
    asyncio.run(rotate(world.secrets, Rotation.CA))
    asyncio.run(look())
    both = certificates(look.signing)
    world.time.seconds += LIFETIMES.settle.total_seconds()
    asyncio.run(look())
    stored = world.secrets.held

    assert len(first) == 1
    assert both[0] == first[0]
    assert len(both) == 2
    assert certificates(look.signing) == both[1:]
    assert stored is not None
    assert len(certificates(stored.data[BUNDLE])) == 2


def test_a_rotation_reaches_a_server_that_only_polls() -> None:
    """Under a clock that only the keeper's own sleep moves, the leaf is renewed before its end."""
    stage, world = Stage(), World()
    stage.time = world.time
    keeper = stage.keeper(leader(world))
    served: set[str | None] = set()

    while world.time.seconds < 4 * LIFETIMES.leaf.total_seconds():
        asyncio.run(keeper.refresh())
        assert keeper.serving.ready
        served.add(keeper.serving.fingerprint)
        world.time.seconds += LIFETIMES.poll.total_seconds()

    assert len(served) >= 4


def test_a_keeper_looks_once_per_poll_until_cancelled() -> None:
    """Its pause is the one that the lifetimes name, and short while it has nothing to serve."""
    stage = Stage(offers=[None, KubeError("away"), GOOD, GOOD])
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if not stage.offers:
            raise asyncio.CancelledError

    keeper = replace(stage.keeper(), clock=replace(stage.time.clock, sleep=sleep))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keeper.run())

    assert pauses == [POLL_WHILE_INVALID, POLL_WHILE_INVALID, *[LIFETIMES.poll.total_seconds()] * 2]


def test_files_are_read_again_at_every_look(tmp_path: Path) -> None:
    """Whoever replaces them, by whatever means, is followed."""
    files = PairFiles(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    files.certificate.write_bytes(GOOD.certificate)
    files.key.write_bytes(GOOD.key)

    first = asyncio.run(files())
    files.key.write_bytes(b"")
    second = asyncio.run(files())

    assert first == GOOD
    assert second == Pair(certificate=GOOD.certificate, key=b"")


def test_a_throwaway_pair_verifies() -> None:
    """A demonstration needs no Secret."""
    bundle, pair = throwaway(POLICY, clock=Time().clock)

    expected = Expected(
        now=START + timedelta(seconds=1), trusted=certificates(bundle), names=POLICY.names
    )
    assert check_pair(pair, expected) == ()
