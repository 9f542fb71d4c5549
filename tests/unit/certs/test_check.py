"""What is wrong with a pair that is presented."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.check import Expected, PairFault, check_pair
from certs.issue import authority, leaf, service_names
from certs.pem import Pair
from certs.rotation_controller import new_key_material
from tests.fakes.certificates import LIFETIMES, POLICY, START

CA = authority(LIFETIMES, new_key_material(START))
GOOD = leaf(CA, POLICY, new_key_material(START)).pair
OTHER = leaf(CA, POLICY, new_key_material(START)).pair
ENCRYPTED = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.BestAvailableEncryption(b"secret"),
)
EXPECTED = Expected(now=START, trusted=(CA.certificate,), names=POLICY.names)


@pytest.mark.parametrize(
    ("pair", "expected", "faults"),
    [
        pytest.param(GOOD, EXPECTED, [], id="good"),
        pytest.param(replace(GOOD, certificate=b""), EXPECTED, [PairFault.UNREADABLE], id="empty"),
        pytest.param(
            replace(GOOD, certificate=GOOD.certificate[:300]),
            EXPECTED,
            [PairFault.UNREADABLE],
            id="truncated",
        ),
        pytest.param(replace(GOOD, key=b"x"), EXPECTED, [PairFault.UNREADABLE], id="no-key"),
        pytest.param(
            replace(GOOD, key=ENCRYPTED), EXPECTED, [PairFault.UNREADABLE], id="encrypted"
        ),
        pytest.param(replace(GOOD, key=OTHER.key), EXPECTED, [PairFault.MISMATCH], id="other-key"),
        pytest.param(
            GOOD,
            replace(EXPECTED, trusted=(authority(LIFETIMES, new_key_material(START)).certificate,)),
            [PairFault.UNTRUSTED],
            id="other-issuer",
        ),
        pytest.param(
            GOOD,
            replace(EXPECTED, names=service_names("other", "vgpu-system")),
            [PairFault.MISNAMED],
            id="other-service",
        ),
        pytest.param(
            GOOD, replace(EXPECTED, now=START - timedelta(days=1)), [PairFault.EARLY], id="early"
        ),
        pytest.param(
            GOOD,
            replace(EXPECTED, now=START + timedelta(days=1)),
            [PairFault.EXPIRED],
            id="expired",
        ),
        pytest.param(GOOD, Expected(now=START), [], id="nothing-expected"),
    ],
)
def test_findings(pair: Pair, expected: Expected, faults: list[PairFault]) -> None:
    """Each thing that can be wrong is found, and said, without an exception."""
    pair_findings = check_pair(pair, expected)

    assert [item.fault for item in pair_findings] == faults
    assert all(str(item).startswith(f"{item.fault}: ") for item in pair_findings)


def test_several_faults_are_all_told() -> None:
    """Whoever repairs it should not have to come back."""
    wrong = replace(EXPECTED, now=START + timedelta(days=1), names=service_names("a", "b"))

    pair_findings = check_pair(replace(GOOD, key=OTHER.key), wrong)

    assert {item.fault for item in pair_findings} == {
        PairFault.MISMATCH,
        PairFault.MISNAMED,
        PairFault.EXPIRED,
    }
