"""The certificate by which schedulers are known follows the newest authority, and nothing else."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from certs.check import Expected, check_pair
from certs.client_controller import ClientController
from certs.pem import Pair, certificates, certificates_pem
from certs.rotation_controller import SecretChange, StoredSecret, new_key_material
from certs.rotation_policy import AddNextCA, DropOldCA, RenewLeaf, Step, SwitchLeaf
from certs.secret_codec import (
    BUNDLE,
    LEAF,
    LEAF_KEY,
    SIGNING_KEY,
    SecretState,
    apply_step,
    encode_secret,
)
from kube.errors import ConflictError
from tests.fakes.certificates import LIFETIMES, POLICY, START, FakeSecrets, Time


@dataclass(slots=True)
class Kept:
    """Our Secret in a state of its rotation, and the client's beside it."""

    state: SecretState = field(default_factory=SecretState)
    source: FakeSecrets = field(default_factory=FakeSecrets)
    target: FakeSecrets = field(default_factory=FakeSecrets)
    time: Time = field(default_factory=Time)

    def after(self, *steps: Step) -> "Kept":
        """Advance the rotation and look once."""
        for step in steps:
            self.state = apply_step(self.state, step, POLICY, material=new_key_material(START))
        data, _ = encode_secret(self.state)
        held = {key: text for key, text in data.items() if text is not None}
        self.source.held = StoredSecret(version="s", data=held, annotations={})
        self.look()
        return self

    def look(self) -> None:
        controller = ClientController(
            source=self.source,
            target=self.target,
            lifetimes=LIFETIMES,
            clock=self.time.clock,
        )
        asyncio.run(controller.sweep())

    @property
    def pair(self) -> Pair:
        assert self.target.held is not None
        return Pair(certificate=self.target.held.data[LEAF], key=self.target.held.data[LEAF_KEY])

    def is_signed_by_newest(self) -> bool:
        newest = self.state.next or self.state.signing
        assert newest is not None
        expected = Expected(now=self.time.wall, trusted=(newest.certificate,))
        return not check_pair(self.pair, expected)


def test_it_comes_with_the_first_authority() -> None:
    """With the bundle by which the server is known, and no key of an authority."""
    kept = Kept().after(AddNextCA(), SwitchLeaf())

    assert kept.is_signed_by_newest()
    assert kept.target.held is not None
    assert set(kept.target.held.data) == {BUNDLE, LEAF, LEAF_KEY}
    assert kept.target.held.data[BUNDLE] == certificates_pem(*kept.state.bundle)
    assert SIGNING_KEY not in kept.target.held.data


@pytest.mark.parametrize("step", [RenewLeaf(), None], ids=["a-new-leaf", "nothing-new"])
def test_it_stays_while_authorities_stay(step: Step | None) -> None:
    """A scheduler on a control plane gets it by hand."""
    kept = Kept().after(AddNextCA(), SwitchLeaf())
    before, writes = kept.pair, kept.target.writes

    kept.after(*([] if step is None else [step]))

    assert (kept.pair, kept.target.writes) == (before, writes)


def test_a_new_authority_signs_it_before_anything_else() -> None:
    """So the certificate and the bundle that a scheduler needs come at one time, and stay."""
    kept = Kept().after(AddNextCA(), SwitchLeaf())
    old = kept.pair

    kept.after(AddNextCA())
    new = kept.pair
    switched = kept.after(SwitchLeaf()).pair
    dropped = kept.after(DropOldCA()).pair

    assert new != old
    assert kept.is_signed_by_newest()
    assert (switched, dropped) == (new, new)
    assert kept.target.held is not None
    assert len(certificates(kept.target.held.data[BUNDLE])) == 1


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({LEAF: b"no PEM"}, id="no-certificate"),
        pytest.param({LEAF_KEY: None}, id="no-key"),
        pytest.param({BUNDLE: b""}, id="no-bundle"),
    ],
)
def test_what_is_damaged_is_put_right(damage: dict[str, bytes | None]) -> None:
    """Also after somebody deleted all of it."""
    kept = Kept().after(AddNextCA(), SwitchLeaf())
    assert kept.target.held is not None
    change = SecretChange(data=damage, annotations={})
    asyncio.run(kept.target.write(kept.target.held.version, change))

    kept.look()

    assert kept.is_signed_by_newest()
    assert kept.target.held.data[BUNDLE] == certificates_pem(*kept.state.bundle)
    kept.target.held = None
    kept.look()
    assert kept.is_signed_by_newest()


def test_one_that_has_ended_is_replaced() -> None:
    """It ends with its authority; a clock that was wrong may have signed it."""
    kept = Kept().after(AddNextCA(), SwitchLeaf())
    before = kept.pair
    kept.time.jumped = -(LIFETIMES.skew + timedelta(hours=1))

    kept.look()

    assert kept.pair != before


def test_without_an_authority_nothing_is_written() -> None:
    """Neither before our Secret is there, nor while it holds nothing to sign with."""
    kept = Kept()
    kept.look()
    kept.after()

    assert kept.target.held is None


def test_of_two_writers_one_gives_way() -> None:
    """The certificate that was written first stays."""
    kept = Kept().after(AddNextCA(), SwitchLeaf())
    kept.target.held, kept.target.writes = None, 0
    one, other = (
        ClientController(
            source=kept.source, target=kept.target, lifetimes=LIFETIMES, clock=kept.time.clock
        )
        for _ in range(2)
    )

    async def scenario() -> list[BaseException | None]:
        return list(await asyncio.gather(one.sweep(), other.sweep(), return_exceptions=True))

    first, second = asyncio.run(scenario())

    assert first is None
    assert isinstance(second, ConflictError)
    assert kept.target.writes == 1
    assert kept.is_signed_by_newest()
