"""One writer's rounds; what happens to several is in the properties."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from certs.ca_bundle import WebhookRegistration, WebhookTarget
from certs.rotation_controller import (
    NoSecretError,
    Registrations,
    RotationController,
    Round,
    rotate,
    status,
)
from certs.rotation_policy import (
    AddNextCA,
    DropOldCA,
    Nothing,
    RenewLeaf,
    Rotation,
    Settling,
    Step,
    SwitchLeaf,
)
from certs.status import RotationPhase, phase
from kube.errors import ApiError, ConflictError
from tests.fakes.certificates import LIFETIMES, MUTATING, VALIDATING, KnownReplicas, World

SETTLE = LIFETIMES.settle.total_seconds()


def installed() -> tuple[World, RotationController]:
    world = World()
    writer = world.writer()
    for _ in range(3):
        asyncio.run(writer.round())
    return world, writer


@dataclass(frozen=True, slots=True)
class Forbidding:
    """Registrations of which one may be read but not written."""

    others: Registrations
    target: WebhookTarget

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        return await self.others.read(target)

    async def publish(self, registration: WebhookRegistration, bundle: bytes) -> None:
        if registration.target == self.target:
            raise ApiError(403, "Forbidden", "not yours")
        await self.others.publish(registration, bundle)


def test_an_installation_takes_three_rounds_and_no_waiting() -> None:
    """The authority is made, then published, then signs: each round right after the other."""
    world = World()
    writer = world.writer()

    rounds = [asyncio.run(writer.round()) for _ in range(4)]

    steps: list[type[Step]] = [type(done.step) for done in rounds]
    assert steps == [AddNextCA, Settling, SwitchLeaf, Nothing]
    assert rounds[1].published == (MUTATING, VALIDATING)
    assert [done.may_advance for done in rounds] == [True, True, True, False]


@pytest.mark.parametrize(
    ("nobody", "at_once"),
    [(True, True), (False, False), (ApiError(403, "Forbidden", "not yours"), False)],
)
def test_a_lost_secret_is_made_anew(nobody: bool | ApiError, *, at_once: bool) -> None:
    """Without waiting where no replica serves any more, and as before where one may."""
    world, _ = installed()
    world.secrets.held = None
    writer = world.writer(KnownReplicas(nobody))

    steps: list[type[Step]] = [type(asyncio.run(writer.round()).step) for _ in range(3)]

    assert steps == [AddNextCA, Settling, SwitchLeaf if at_once else Settling]
    world.time.seconds += SETTLE
    assert isinstance(asyncio.run(writer.round()).step, Nothing if at_once else SwitchLeaf)


def test_replicas_are_not_asked_for_while_there_is_a_leaf() -> None:
    """It happens every few seconds, and some of them serve it."""
    world, _ = installed()
    replicas = KnownReplicas(nobody=True)

    asyncio.run(world.writer(replicas).round())

    assert replicas.asked == 0


def test_a_rotation_of_the_authority_step_by_step() -> None:
    """Published, observed for a while, switched, and dropped when the old leaf has ended."""
    world, writer = installed()
    steps: list[type[Step]] = []
    asyncio.run(rotate(world.secrets, Rotation.CA))

    for pause in (0, 0, SETTLE, SETTLE, LIFETIMES.leaf.total_seconds(), SETTLE, SETTLE, SETTLE):
        world.time.seconds += pause
        steps.append(type(asyncio.run(writer.round()).step))

    expected: list[type[Step]] = [AddNextCA, Settling, Settling, SwitchLeaf, RenewLeaf, DropOldCA]
    assert steps[:6] == expected
    assert steps[-1] is Nothing


@pytest.mark.parametrize("jump", [-5, 5], ids=["backwards", "forwards"])
def test_a_jump_of_the_clock_starts_the_observation_anew(jump: int) -> None:
    """After a suspend nothing is signed on the strength of what was seen before it."""
    world, writer = installed()
    world.time.seconds += SETTLE
    asyncio.run(writer.round())
    asyncio.run(rotate(world.secrets, Rotation.LEAF))

    world.time.jumped += timedelta(seconds=jump)
    at_once = asyncio.run(writer.round()).step
    world.time.seconds += SETTLE
    later = asyncio.run(writer.round()).step

    assert at_once == Settling()
    assert later == RenewLeaf()


def test_an_absent_registration_is_skipped_and_said() -> None:
    """Who installs only one of the two is served all the same."""
    world = World()
    del world.registrations.objects[VALIDATING]
    writer = world.writer()

    rounds = [asyncio.run(writer.round()) for _ in range(3)]

    assert rounds[-1].missing == (VALIDATING,)
    assert isinstance(rounds[-1].step, SwitchLeaf)


def test_a_registration_that_cannot_be_written_holds_up_the_new_authority_only() -> None:
    """The other one gets its bundle, and the present authority goes on renewing leaves."""
    world, writer = installed()
    writer.registrations = Forbidding(world.registrations, MUTATING)
    asyncio.run(rotate(world.secrets, Rotation.CA))
    asyncio.run(writer.round())

    result = asyncio.run(writer.round())
    world.time.seconds += LIFETIMES.leaf.total_seconds()
    asyncio.run(writer.round())
    world.time.seconds += SETTLE
    renewed = asyncio.run(writer.round())

    assert result.published == (VALIDATING,)
    assert result.failed == (
        "MutatingWebhookConfiguration 'vgpu-admission': 403 Forbidden: not yours",
    )
    assert renewed.step == RenewLeaf()


def test_a_registration_that_lost_its_bundle_gets_it_back() -> None:
    """A `kubectl replace` of the manifests heals within one round."""
    world, writer = installed()
    carried = world.registrations.objects[MUTATING]
    world.registrations.install(MUTATING)

    done = asyncio.run(writer.round())

    assert done.published == (MUTATING,)
    assert world.registrations.objects[MUTATING].bundles == carried.bundles


def test_a_settled_writer_writes_nothing() -> None:
    """A quiet cluster sees reads only."""
    world, writer = installed()
    before = (world.secrets.writes, world.registrations.writes)

    done = asyncio.run(writer.round())

    assert not done.may_advance
    assert (world.secrets.writes, world.registrations.writes) == before


def test_a_rotation_needs_a_secret() -> None:
    """Before the first installation there is nothing to rotate, and the error says so."""
    with pytest.raises(NoSecretError, match="does not exist yet"):
        asyncio.run(rotate(World().secrets, Rotation.LEAF))


def test_a_status_changes_nothing() -> None:
    """Asking is free."""
    world, writer = installed()
    writes = world.secrets.writes

    result = asyncio.run(status(replace(writer, targets=(MUTATING,))))

    assert phase(result.state) is RotationPhase.STEADY
    assert result.now == world.time.wall
    assert world.secrets.writes == writes


def test_a_writer_that_was_overtaken_says_so() -> None:
    """Of two that found no Secret one creates it; the other learns of the conflict."""
    world = World()

    async def both() -> tuple[Round | BaseException, Round | BaseException]:
        rounds = (world.writer().round(), world.writer().round())
        return await asyncio.gather(*rounds, return_exceptions=True)

    first, second = asyncio.run(both())

    assert isinstance(first, Round)
    assert isinstance(second, ConflictError)
    assert world.secrets.writes == 1
