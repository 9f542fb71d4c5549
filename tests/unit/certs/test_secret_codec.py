"""What the keys of the Secret mean."""

from dataclasses import replace

import pytest

from certs.issue import authority, leaf, service_names
from certs.pem import certificates_pem, fingerprint
from certs.rotation_controller import new_key_material
from certs.rotation_policy import AddNextCA, DropOldCA, RenewLeaf, Rotation, Step, SwitchLeaf
from certs.secret_codec import (
    SecretState,
    adopt_authorities,
    apply_step,
    decode_secret,
    encode_secret,
    rotation_state,
)
from tests.fakes.certificates import LIFETIMES, POLICY, START

STRANGER = authority(LIFETIMES, new_key_material(START)).certificate


def grown(*steps: Step, store: SecretState | None = None) -> SecretState:
    store = store or SecretState()
    for step in steps:
        store = apply_step(store, step, POLICY, material=new_key_material(START))
    return store


INSTALLED = grown(AddNextCA(), SwitchLeaf())
OVERLAP = grown(AddNextCA(), SwitchLeaf(), store=INSTALLED)


def reread(store: SecretState) -> SecretState:
    data, annotations = encode_secret(store)
    return decode_secret(
        {key: value for key, value in data.items() if value is not None},
        {key: value for key, value in annotations.items() if value is not None},
    )


@pytest.mark.parametrize(
    "store",
    [
        pytest.param(grown(AddNextCA()), id="next-only"),
        pytest.param(INSTALLED, id="installed"),
        pytest.param(grown(AddNextCA(), store=INSTALLED), id="publishing"),
        pytest.param(OVERLAP, id="overlap"),
        pytest.param(replace(INSTALLED, request=Rotation.CA), id="requested"),
    ],
)
def test_a_store_survives_the_secret(store: SecretState) -> None:
    """Another writer reads from the Secret exactly what the last one knew."""
    again = reread(store)

    assert encode_secret(again) == encode_secret(store)
    assert rotation_state(again, POLICY.names) == rotation_state(store, POLICY.names)


def test_a_switch_changes_no_bundle() -> None:
    """What was published before it is right after it, byte by byte."""
    published = grown(AddNextCA(), store=INSTALLED)

    switched = grown(SwitchLeaf(), store=published)

    assert certificates_pem(*switched.bundle) == certificates_pem(*published.bundle)
    assert switched.old == (INSTALLED.bundle[0],)
    assert switched.old_until == START + LIFETIMES.leaf + LIFETIMES.skew


def test_an_idle_next_authority_gives_way_to_another() -> None:
    """It has signed nothing, so nobody misses it."""
    twice = grown(AddNextCA(), AddNextCA(), store=INSTALLED)

    assert len(twice.bundle) == 2
    assert twice.old == ()


def test_dropping_keeps_what_signs() -> None:
    """After the overlap one authority is left, and the leaf is its own."""
    dropped = grown(DropOldCA(), store=OVERLAP)
    known = rotation_state(dropped, POLICY.names)

    assert dropped.bundle == OVERLAP.bundle[1:]
    assert dropped.old_until is None
    assert known.leaf is not None
    assert known.leaf.issuer == fingerprint(dropped.bundle[0])


def test_a_renewal_answers_only_the_request_for_one() -> None:
    """An authority that was asked for is still owed."""
    asked = replace(INSTALLED, request=Rotation.CA)

    assert grown(RenewLeaf(), store=asked).request is Rotation.CA
    assert grown(RenewLeaf(), store=replace(asked, request=Rotation.LEAF)).request is None
    pending = grown(AddNextCA(), store=asked)
    assert pending.request is Rotation.CA
    assert grown(SwitchLeaf(), store=pending).request is None


@pytest.mark.parametrize("step", [SwitchLeaf(), RenewLeaf()], ids=["switch", "renew"])
def test_a_leaf_needs_an_authority(step: Step) -> None:
    """Steps out of order cannot be performed."""
    with pytest.raises(ValueError, match=r"no (next|signing) CA"):
        grown(step)


@pytest.mark.parametrize("key", ["ca.crt", "tls.crt", "tls.key"])
def test_a_damaged_leaf_counts_as_none(key: str) -> None:
    """So that it is issued anew."""
    data, _ = encode_secret(INSTALLED)
    damaged = {name: value for name, value in data.items() if value is not None} | {key: b"?"}

    assert rotation_state(decode_secret(damaged, {}), POLICY.names).leaf is None


def test_a_leaf_for_another_service_counts_as_none() -> None:
    """A renamed Service gets a certificate for its new name."""
    assert rotation_state(INSTALLED, service_names("renamed", "vgpu-system")).leaf is None


def test_a_leaf_of_another_issuer_counts_as_none() -> None:
    """It would verify nowhere."""
    foreign = leaf(
        authority(LIFETIMES, new_key_material(START)), POLICY, new_key_material(START)
    ).pair

    assert rotation_state(replace(INSTALLED, leaf=foreign), POLICY.names).leaf is None


def test_a_lost_secret_keeps_trusting_what_the_registrations_trust() -> None:
    """Replicas may still serve a leaf of it; a Secret that is whole adopts nobody."""
    assert adopt_authorities(SecretState(), (STRANGER,)).old == (STRANGER,)
    assert adopt_authorities(INSTALLED, (STRANGER,)) == INSTALLED


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-11-21T12:00:00"], ids=str)
def test_annotations_that_mean_nothing_are_ignored(text: str) -> None:
    """The overlap then lasts as long as the old authority itself; a time without zone is none."""
    annotations = {"vgpu-admission.io/old-ca-until": text, "vgpu-admission.io/rotate": text}

    read = decode_secret({}, annotations)

    assert (read.old_until, read.request) == (None, None)
