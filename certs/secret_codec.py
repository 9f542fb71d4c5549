"""The keys of the Secret, decoded and encoded, and how each step of the policy changes them.

``ca.crt`` is the bundle: every trusted authority, oldest first, as in the registrations. ``ca.key``
is the key of the authority that signs, ``next-ca.key`` that of the next one; the others are old.
``tls.crt`` and ``tls.key`` are the leaf. Nothing is stored twice, so nothing can be inconsistent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs import check, issue, pem, rotation_policy
from certs.issue import Credential, IssueParameters, KeyMaterial, Names
from certs.pem import Pair
from certs.rotation_policy import Rotation, RotationState, Step

BUNDLE: Final = "ca.crt"
SIGNING_KEY: Final = "ca.key"
NEXT_KEY: Final = "next-ca.key"
LEAF: Final = "tls.crt"
LEAF_KEY: Final = "tls.key"
REQUEST: Final = "vgpu-admission.io/rotate"
OLD_UNTIL: Final = "vgpu-admission.io/old-ca-until"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretState:
    """The Secret, decoded; a missing or malformed part is ``None`` or empty."""

    bundle: tuple[x509.Certificate, ...] = ()
    signing: Credential | None = None
    next: Credential | None = None
    leaf: Pair | None = None
    old_until: datetime | None = None
    request: Rotation | None = None

    @property
    def old(self) -> tuple[x509.Certificate, ...]:
        """Return the authorities that are trusted but sign no more."""
        credentials = [c.certificate for c in (self.signing, self.next) if c is not None]
        return tuple(item for item in self.bundle if item not in credentials)


def decode_secret(data: Mapping[str, bytes], annotations: Mapping[str, str]) -> SecretState:
    """Decode the data and annotations of a Secret."""
    bundle = pem.certificates(data.get(BUNDLE, b""))
    certificate, key = data.get(LEAF), data.get(LEAF_KEY)
    return SecretState(
        bundle=bundle,
        signing=_credential(bundle, data.get(SIGNING_KEY, b"")),
        next=_credential(bundle, data.get(NEXT_KEY, b"")),
        leaf=Pair(certificate=certificate, key=key) if certificate and key else None,
        old_until=_timestamp(annotations.get(OLD_UNTIL)),
        request=_rotation(annotations.get(REQUEST)),
    )


def encode_secret(secret: SecretState) -> tuple[dict[str, bytes | None], dict[str, str | None]]:
    """Return the data and annotations of a Secret; a key with ``None`` must not exist."""
    data = {
        BUNDLE: pem.certificates_pem(*secret.bundle),
        SIGNING_KEY: secret.signing.pair.key if secret.signing else None,
        NEXT_KEY: secret.next.pair.key if secret.next else None,
        LEAF: secret.leaf.certificate if secret.leaf else None,
        LEAF_KEY: secret.leaf.key if secret.leaf else None,
    }
    annotations = {
        OLD_UNTIL: secret.old_until.isoformat() if secret.old_until else None,
        REQUEST: secret.request.value if secret.request else None,
    }
    return data, annotations


def rotation_state(secret: SecretState, names: Names) -> RotationState:
    """Return what the policy needs to know of *secret*; a leaf with faults counts as none."""
    return RotationState(
        signing=_policy_certificate(secret.signing.certificate) if secret.signing else None,
        next=_policy_certificate(secret.next.certificate) if secret.next else None,
        old=tuple(map(_policy_certificate, secret.old)),
        old_until=secret.old_until,
        leaf=_known_leaf(secret, names),
        request=secret.request,
    )


def adopt_authorities(secret: SecretState, trusted: tuple[x509.Certificate, ...]) -> SecretState:
    """Add *trusted* to the bundle if our own authorities were lost.

    They are what the registrations trust, and replicas may still serve a leaf of theirs.
    """
    if secret.signing is not None or secret.next is not None:
        return secret
    unknown = (item for item in trusted if item not in secret.bundle)
    return replace(secret, bundle=(*secret.bundle, *unknown))


def apply_step(
    secret: SecretState, step: Step, parameters: IssueParameters, *, material: KeyMaterial
) -> SecretState:
    """Return *secret* after *step*, which the policy found safe."""
    match step:
        case rotation_policy.Nothing() | rotation_policy.Settling():
            return secret
        case rotation_policy.AddNextCA():
            return _with_next(secret, parameters, material)
        case rotation_policy.SwitchLeaf():
            return _switch_leaf(secret, parameters, material)
        case rotation_policy.RenewLeaf():
            return _renew_leaf(secret, parameters, material)
        case rotation_policy.DropOldCA():
            kept = tuple(item for item in secret.bundle if item not in secret.old)
            return replace(secret, bundle=kept, old_until=None)
        case _:
            assert_never(step)


def _with_next(
    secret: SecretState, parameters: IssueParameters, material: KeyMaterial
) -> SecretState:
    """Trust a new authority, and drop the previous next one, which has signed nothing.

    A request for a rotation stays until the new authority signs, because it shortens the wait.
    """
    authority = issue.authority(parameters.lifetimes, material)
    superseded = secret.next.certificate if secret.next else None
    kept = tuple(item for item in secret.bundle if item != superseded)
    return replace(secret, bundle=(*kept, authority.certificate), next=authority)


def _switch_leaf(
    secret: SecretState, parameters: IssueParameters, material: KeyMaterial
) -> SecretState:
    if secret.next is None:
        raise ValueError("no next CA to switch to: publish one first")
    leaf = issue.leaf(secret.next, parameters, material).pair
    switched = replace(secret, signing=secret.next, next=None, leaf=leaf, request=None)
    return replace(
        switched, old_until=_overlap_end(secret, parameters, material) if switched.old else None
    )


def _renew_leaf(
    secret: SecretState, parameters: IssueParameters, material: KeyMaterial
) -> SecretState:
    if secret.signing is None:
        raise ValueError("no signing CA to renew the leaf with")
    leaf = issue.leaf(secret.signing, parameters, material).pair
    request = None if secret.request is Rotation.LEAF else secret.request
    return replace(secret, leaf=leaf, request=request)


def _overlap_end(
    secret: SecretState, parameters: IssueParameters, material: KeyMaterial
) -> datetime:
    """Return when every leaf signed so far has expired, even by clocks that are slow."""
    ends = [material.now + parameters.lifetimes.leaf]
    if secret.old_until is not None:
        ends.append(secret.old_until)
    if secret.leaf is not None:
        ends += [item.not_valid_after_utc for item in pem.certificates(secret.leaf.certificate)]
    return max(ends) + parameters.lifetimes.skew


def _credential(bundle: tuple[x509.Certificate, ...], text: bytes) -> Credential | None:
    key = pem.private_key(text)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    public = pem.public_bytes(key.public_key())
    matching = (item for item in bundle if pem.public_bytes(item.public_key()) == public)
    certificate = next(matching, None)
    return None if certificate is None else Credential(certificate=certificate, key=key)


def _policy_certificate(
    certificate: x509.Certificate, issuer: str | None = None
) -> rotation_policy.Certificate:
    return rotation_policy.Certificate(
        fingerprint=pem.fingerprint(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        issuer=issuer,
    )


def _known_leaf(secret: SecretState, names: Names) -> rotation_policy.Certificate | None:
    if secret.leaf is None:
        return None
    chain = pem.certificates(secret.leaf.certificate)
    issuer = check.issuer_of(chain[0], secret.bundle) if chain else None
    if issuer is None:
        return None
    expected = check.Expected(now=chain[0].not_valid_before_utc, names=names)
    if check.check_pair(secret.leaf, expected):
        return None
    return _policy_certificate(chain[0], pem.fingerprint(issuer))


def _timestamp(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _rotation(text: str | None) -> Rotation | None:
    return next((item for item in Rotation if item == text), None)
