"""A caller's certificate follows the newest authority, and a server's the one that signs."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.check import Expected, check_pair
from certs.issue import service_names
from certs.leaf_controller import KEPT_POLL, ClientLeaf, LeafController, ServerLeaf
from certs.pem import Pair, certificates, certificates_pem
from certs.refresh_controller import CertificateReason, Notice
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

CLIENT = ClientLeaf("vgpu-extender-client")
SERVER = ServerLeaf(service_names("vgpu-console", "vgpu-system"))


@dataclass(slots=True)
class Kept:
    """Our Secret in a state of its rotation, and the one of a leaf beside it."""

    leaf: ClientLeaf | ServerLeaf = CLIENT

    state: SecretState = field(default_factory=SecretState)
    source: FakeSecrets = field(default_factory=FakeSecrets)
    target: FakeSecrets = field(default_factory=FakeSecrets)
    time: Time = field(default_factory=Time)
    notices: list[Notice] = field(default_factory=list)

    def after(self, *steps: Step) -> "Kept":
        """Advance the rotation and look once."""
        for step in steps:
            self.state = apply_step(self.state, step, POLICY, material=new_key_material(START))
        data, _ = encode_secret(self.state)
        held = {key: text for key, text in data.items() if text is not None}
        self.source.held = StoredSecret(version="s", data=held, annotations={})
        self.look()
        return self

    @property
    def controller(self) -> LeafController:
        return LeafController(
            source=self.source,
            target=self.target,
            leaf=self.leaf,
            announce=self.notices.append,
            lifetimes=LIFETIMES,
            clock=self.time.clock,
        )

    def look(self) -> bool:
        return asyncio.run(self.controller.sweep())

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


@pytest.mark.parametrize(
    ("leaf", "name"),
    [(CLIENT, "vgpu-extender-client"), (SERVER, "vgpu-console.vgpu-system.svc")],
    ids=["a-caller", "a-server"],
)
def test_what_is_issued_is_announced_once(leaf: ClientLeaf | ServerLeaf, name: str) -> None:
    """With its name and its end; a bundle that changes beside it is no news of the certificate."""
    kept = Kept(leaf).after(AddNextCA(), SwitchLeaf())
    kept.look()
    assert kept.target.held is not None
    kept.target.held = replace(
        kept.target.held, data={**kept.target.held.data, BUNDLE: b"somebody else's"}
    )
    kept.look()

    (notice,) = kept.notices
    until = certificates(kept.pair.certificate)[0].not_valid_after_utc.isoformat()
    assert notice.reason is CertificateReason.RENEWED
    assert notice.note == f"a certificate of {name} was issued, valid until {until}"


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
    one, other = kept.controller, kept.controller

    async def scenario() -> list[bool | BaseException]:
        return list(await asyncio.gather(one.sweep(), other.sweep(), return_exceptions=True))

    first, second = asyncio.run(scenario())

    assert first is False
    assert isinstance(second, ConflictError)
    assert kept.target.writes == 1
    assert kept.is_signed_by_newest()


def test_a_caller_is_known_by_its_name_and_serves_nobody() -> None:
    """As a server's certificate makes nobody known."""
    (client,) = certificates(Kept().after(AddNextCA(), SwitchLeaf()).pair.certificate)
    (server,) = certificates(Kept(SERVER).after(AddNextCA(), SwitchLeaf()).pair.certificate)

    assert client.subject.rfc4514_string() == "CN=vgpu-extender-client"
    assert usages(client) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert usages(server) == [ExtendedKeyUsageOID.SERVER_AUTH]


def usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_server_has_the_names_of_its_service() -> None:
    """And the bundle, by which it knows its callers."""
    kept = Kept(SERVER).after(AddNextCA(), SwitchLeaf())

    expected = Expected(
        now=kept.time.wall,
        trusted=kept.state.bundle,
        names=service_names("vgpu-console", "vgpu-system"),
    )
    assert check_pair(kept.pair, expected) == ()
    assert kept.target.held is not None
    assert kept.target.held.data[BUNDLE] == certificates_pem(*kept.state.bundle)


def test_a_server_changes_with_the_authority_that_signs() -> None:
    """Not before, because callers may not know the new one; the bundle does change before."""
    kept = Kept(SERVER).after(AddNextCA(), SwitchLeaf())
    old = kept.pair

    published = kept.after(AddNextCA()).pair
    bundle = kept.target.held.data[BUNDLE] if kept.target.held else b""
    switched = kept.after(SwitchLeaf()).pair
    dropped = kept.after(DropOldCA()).pair

    assert published == old != switched == dropped
    assert bundle.count(b"BEGIN") == 2
    assert kept.is_signed_by_newest()


def test_a_server_is_renewed_before_it_ends() -> None:
    """When a third of its life is left."""
    kept = Kept(SERVER).after(AddNextCA(), SwitchLeaf())
    first = kept.pair
    changes = 0
    for _ in range(40):
        kept.time.seconds += 10
        kept.look()
        changes += kept.pair != first

        assert check_pair(kept.pair, Expected(now=kept.time.wall)) == ()

    assert changes == 40 - 19  # it lives for 300 s


def test_a_server_is_not_renewed_for_nothing() -> None:
    """A certificate cannot outlive its authority."""
    kept = Kept(SERVER).after(AddNextCA(), SwitchLeaf())
    kept.time.seconds = LIFETIMES.ca.total_seconds() - 50
    kept.look()
    last, writes = kept.pair, kept.target.writes
    kept.time.seconds += 20
    kept.look()

    assert (kept.pair, kept.target.writes) == (last, writes)


def test_a_server_of_other_names_is_replaced() -> None:
    """The namespace of an installation may change, and with it the Service's name."""
    kept = Kept(SERVER).after(AddNextCA(), SwitchLeaf())
    before = kept.pair
    kept.leaf = ServerLeaf(service_names("vgpu-console", "elsewhere"))

    assert [kept.look(), kept.look()] == [False, True]
    assert kept.pair != before


def test_what_is_kept_is_looked_at_less_often() -> None:
    """What is missing, and an authority that is not there yet, every few seconds."""
    kept, slept = Kept(), list[float]()
    kept.after()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            kept.state = apply_step(
                kept.state, AddNextCA(), POLICY, material=new_key_material(START)
            )
            data, _ = encode_secret(kept.state)
            held = {key: text for key, text in data.items() if text is not None}
            kept.source.held = StoredSecret(version="s", data=held, annotations={})
        if len(slept) == 4:
            raise asyncio.CancelledError

    controller = replace(kept.controller, clock=replace(kept.time.clock, sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(controller.run())

    poll = LIFETIMES.poll.total_seconds()
    assert slept == [poll, poll, KEPT_POLL, KEPT_POLL]
