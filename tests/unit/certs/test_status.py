"""What a person reads about certificates, and what registrations are said to trust."""

import re
from dataclasses import replace

import pytest

from certs.ca_bundle import (
    WebhookRegistration,
    is_outdated,
    trusted_authorities,
    trusted_fingerprints,
)
from certs.pem import certificates_pem, fingerprint
from certs.rotation_controller import new_key_material
from certs.rotation_policy import AddNextCA, Rotation, SwitchLeaf
from certs.secret_codec import SecretState, apply_step, rotation_state
from certs.status import SHOWN, CertificatesStatus, RotationPhase, lines, phase
from tests.fakes.certificates import MUTATING, POLICY, START, VALIDATING

STORES = [SecretState()]
for made in (AddNextCA(), SwitchLeaf(), AddNextCA(), SwitchLeaf()):
    STORES.append(apply_step(STORES[-1], made, POLICY, material=new_key_material(START)))
EMPTY, FIRST, STEADY, PUBLISHING, OVERLAP = STORES


def registration(*bundles: bytes) -> WebhookRegistration:
    named = tuple((f"hook-{i}", bundle) for i, bundle in enumerate(bundles))
    return WebhookRegistration(target=MUTATING, version="1", bundles=named)


def status(store: SecretState, *registrations: WebhookRegistration) -> CertificatesStatus:
    return CertificatesStatus(
        now=START,
        state=rotation_state(store, POLICY.names),
        bundle=certificates_pem(*store.bundle),
        registrations=registrations,
        missing=(VALIDATING,),
    )


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param(EMPTY, RotationPhase.EMPTY, id="empty"),
        pytest.param(FIRST, RotationPhase.PUBLISHING, id="first"),
        pytest.param(STEADY, RotationPhase.STEADY, id="steady"),
        pytest.param(PUBLISHING, RotationPhase.PUBLISHING, id="publishing"),
        pytest.param(OVERLAP, RotationPhase.OVERLAP, id="overlap"),
    ],
)
def test_phases(store: SecretState, expected: RotationPhase) -> None:
    """Every step of a rotation has a name, and the report begins with it."""
    shown = status(store)

    assert phase(shown.state) is expected
    assert next(lines(shown)).split()[1].rstrip(":") == expected


def test_the_report_says_from_when_the_next_authority_signs() -> None:
    """Some time after it was made, unless a person asked for it."""
    asked = replace(PUBLISHING, request=Rotation.CA)

    assert re.search(
        r", not before \d{4}-\d\d-\d\d \d\d:\d\d UTC$", next(lines(status(PUBLISHING)))
    )
    assert next(lines(status(asked))).endswith("once every registration trusts it")


def test_the_report_says_what_each_registration_lacks() -> None:
    """Old trust without the new authority is what holds a rotation up."""
    carries = registration(certificates_pem(*PUBLISHING.bundle))
    lacks = registration(certificates_pem(*STEADY.bundle))
    new = fingerprint(PUBLISHING.bundle[-1])[:SHOWN]

    shown = list(lines(status(PUBLISHING, carries, lacks)))

    assert shown[-3:] == [
        "MutatingWebhookConfiguration 'vgpu-admission' carries the bundle",
        f"MutatingWebhookConfiguration 'vgpu-admission' lacks CA {new}",
        "ValidatingWebhookConfiguration 'vgpu-admission' does not exist, skipped",
    ]


def test_the_report_names_every_certificate_and_the_request() -> None:
    """One line each, with the end of its validity."""
    asked = replace(OVERLAP, request=Rotation.LEAF)

    shown = "\n".join(lines(status(asked)))

    for certificate in OVERLAP.bundle:
        assert fingerprint(certificate)[:SHOWN] in shown
    assert "overlap: old CAs are trusted until 2026-11-21 12:05 UTC" in shown
    assert "requested   leaf" in shown


def test_a_registration_trusts_what_all_of_its_webhooks_trust() -> None:
    """One webhook without the authority is one that fails."""
    both, one = certificates_pem(*OVERLAP.bundle), certificates_pem(OVERLAP.bundle[0])

    assert trusted_fingerprints(registration(both, one)) == {fingerprint(OVERLAP.bundle[0])}
    assert trusted_fingerprints(registration(both, b"")) == frozenset()
    assert trusted_fingerprints(registration()) == frozenset()
    assert set(trusted_authorities([registration(both, one)])) == set(OVERLAP.bundle)


def test_a_registration_is_outdated_until_every_webhook_is_equal() -> None:
    """More trust than ours is outdated, too."""
    both, one = certificates_pem(*OVERLAP.bundle), certificates_pem(OVERLAP.bundle[0])

    assert is_outdated(registration(both, one), both)
    assert is_outdated(registration(both), one)
    assert not is_outdated(registration(both, both), both)
