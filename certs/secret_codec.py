"""Store: what the keys of the Secret mean, and what each step of the policy makes of them.

``ca.crt`` is the bundle: every trusted authority, oldest first, as the registrations carry it.
``ca.key`` tells which of them signs and ``next-ca.key`` which one will; the others are old.
``tls.crt`` and ``tls.key`` are the leaf. Nothing is stored twice, so nothing can disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs import check, issue, pem, rotation_policy
from certs.issue import Credential, Fresh, IssueParameters, Names
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
    """The Secret, parsed; what is missing or malformed is ``None`` or empty."""

    bundle: tuple[x509.Certificate, ...] = ()
    signing: Credential | None = None
    next: Credential | None = None
    leaf: Pair | None = None
    old_until: datetime | None = None
    request: Rotation | None = None

    @property
    def old(self) -> tuple[x509.Certificate, ...]:
        """Return the authorities that are trusted but sign no more."""
        keys = [held.certificate for held in (self.signing, self.next) if held is not None]
        return tuple(item for item in self.bundle if item not in keys)


def decode_secret(data: Mapping[str, bytes], annotations: Mapping[str, str]) -> SecretState:
    """Read what a Secret holds."""
    bundle = pem.certificates(data.get(BUNDLE, b""))
    certificate, key = data.get(LEAF), data.get(LEAF_KEY)
    return SecretState(
        bundle=bundle,
        signing=_credential(bundle, data.get(SIGNING_KEY, b"")),
        next=_credential(bundle, data.get(NEXT_KEY, b"")),
        leaf=Pair(certificate=certificate, key=key) if certificate and key else None,
        old_until=_moment(annotations.get(OLD_UNTIL)),
        request=_rotation(annotations.get(REQUEST)),
    )


def encode_secret(store: SecretState) -> tuple[dict[str, bytes | None], dict[str, str | None]]:
    """Return the data and annotations of a Secret, ``None`` for each that must not exist."""
    data = {
        BUNDLE: pem.certificates_pem(*store.bundle),
        SIGNING_KEY: store.signing.pair.key if store.signing else None,
        NEXT_KEY: store.next.pair.key if store.next else None,
        LEAF: store.leaf.certificate if store.leaf else None,
        LEAF_KEY: store.leaf.key if store.leaf else None,
    }
    annotations = {
        OLD_UNTIL: store.old_until.isoformat() if store.old_until else None,
        REQUEST: store.request.value if store.request else None,
    }
    return data, annotations


def state(store: SecretState, names: Names) -> RotationState:
    """Return what the policy needs to know of *store*; a leaf with faults counts as none."""
    return RotationState(
        signing=_policy_certificate(store.signing.certificate) if store.signing else None,
        next=_policy_certificate(store.next.certificate) if store.next else None,
        old=tuple(map(_policy_certificate, store.old)),
        old_until=store.old_until,
        leaf=_known_leaf(store, names),
        request=store.request,
    )


def adopt_authorities(store: SecretState, strangers: tuple[x509.Certificate, ...]) -> SecretState:
    """Keep trusting *strangers* where our own authorities were lost.

    They are what the registrations trust, and replicas may still serve a leaf of theirs.
    """
    if store.signing is not None or store.next is not None:
        return store
    unknown = (item for item in strangers if item not in store.bundle)
    return replace(store, bundle=(*store.bundle, *unknown))


def apply_step(
    store: SecretState, step: Step, terms: IssueParameters, *, fresh: Fresh
) -> SecretState:
    """Return *store* after *step*, which the policy found safe."""
    match step:
        case rotation_policy.Nothing() | rotation_policy.Settling():
            return store
        case rotation_policy.AddNextCA():
            return _with_next(store, terms, fresh)
        case rotation_policy.SwitchLeaf():
            return _switch_leaf(store, terms, fresh)
        case rotation_policy.RenewLeaf():
            return _renew_leaf(store, terms, fresh)
        case rotation_policy.DropOldCA():
            kept = tuple(item for item in store.bundle if item not in store.old)
            return replace(store, bundle=kept, old_until=None)
        case _:
            assert_never(step)


def _with_next(store: SecretState, terms: IssueParameters, fresh: Fresh) -> SecretState:
    """Trust a new authority; one that was next until now has signed nothing and goes.

    A request for it stands until it signs, which it would else do much later.
    """
    made = issue.authority(terms.lifetimes, fresh)
    idle = store.next.certificate if store.next else None
    kept = tuple(item for item in store.bundle if item != idle)
    return replace(store, bundle=(*kept, made.certificate), next=made)


def _switch_leaf(store: SecretState, terms: IssueParameters, fresh: Fresh) -> SecretState:
    if store.next is None:
        raise ValueError("no next CA to switch to: publish one first")
    made = issue.leaf(store.next, terms, fresh).pair
    switched = replace(store, signing=store.next, next=None, leaf=made, request=None)
    return replace(switched, old_until=_overlap_end(store, terms, fresh) if switched.old else None)


def _renew_leaf(store: SecretState, terms: IssueParameters, fresh: Fresh) -> SecretState:
    if store.signing is None:
        raise ValueError("no signing CA to renew the leaf with")
    made = issue.leaf(store.signing, terms, fresh).pair
    request = None if store.request is Rotation.LEAF else store.request
    return replace(store, leaf=made, request=request)


def _overlap_end(store: SecretState, terms: IssueParameters, fresh: Fresh) -> datetime:
    """Return when every leaf signed so far has expired, on clocks that are behind, too."""
    ends = [fresh.now + terms.lifetimes.leaf]
    if store.old_until is not None:
        ends.append(store.old_until)
    if store.leaf is not None:
        ends += [item.not_valid_after_utc for item in pem.certificates(store.leaf.certificate)]
    return max(ends) + terms.lifetimes.skew


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


def _known_leaf(store: SecretState, names: Names) -> rotation_policy.Certificate | None:
    if store.leaf is None:
        return None
    held = pem.certificates(store.leaf.certificate)
    issuer = check.issuer_of(held[0], store.bundle) if held else None
    if issuer is None:
        return None
    expected = check.Expected(now=held[0].not_valid_before_utc, names=names)
    if check.findings(store.leaf, expected):
        return None
    return _policy_certificate(held[0], pem.fingerprint(issuer))


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _rotation(text: str | None) -> Rotation | None:
    return next((item for item in Rotation if item == text), None)
