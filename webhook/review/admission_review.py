"""AdmissionReview on the wire: the parts of it we read, and the answers we give.

Only the fields that a decision needs are decoded; all others stay with the API server, and
the answer names changes, so nothing that we do not know is lost. ``None`` means that the
field was absent or null, which decides how a patch must create it.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec
import orjson

from webhook.review.pod_schema import Pod

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"


class UserInfo(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Who asked."""

    username: str = ""
    groups: tuple[str, ...] | None = None


class ObjectKind(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What kind of object a review carries."""

    group: str = ""
    version: str = ""
    kind: str = "Pod"


class Request(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The request under review."""

    uid: str
    kind: ObjectKind = ObjectKind()
    operation: str = ""
    sub_resource: str | None = None
    name: str | None = None
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None
    object: Pod | None = None
    old_object: Pod | None = None


class Review(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An AdmissionReview v1 that carries a pod."""

    request: Request
    api_version: str = ""
    kind: str = ""


class KnownRequest(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What is known of a request whose object cannot be read."""

    uid: str = ""
    operation: str = ""
    name: str | None = None
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None


class _KnownEnvelope(msgspec.Struct, frozen=True, gc=False):
    request: KnownRequest = KnownRequest()


class _UidOnly(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""


class _Envelope(msgspec.Struct, frozen=True, rename="camel", gc=False):
    request: _UidOnly = _UidOnly()


_REVIEW: Final = msgspec.json.Decoder(Review)
_UID: Final = re.compile(
    rb'\s*\{(?:"(?:kind|apiVersion)":"[A-Za-z0-9./]{1,64}",)*"request":\{"uid":"([A-Za-z0-9-]{1,64})"'
)
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_KNOWN: Final = msgspec.json.Decoder(_KnownEnvelope)
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class _Identified(Protocol):
    @property
    def uid(self) -> str: ...


class Envelope(Protocol):
    """What every kind of review has, whatever object it carries."""

    @property
    def api_version(self) -> str:
        """Return the version it says it is of."""

    @property
    def kind(self) -> str:
        """Return what it says it is."""

    @property
    def request(self) -> _Identified:
        """Return what is asked."""


EnvelopeT = TypeVar("EnvelopeT", bound=Envelope)


class NotAReviewError(Exception):
    """A body that is no AdmissionReview; there is no uid to answer to."""


class BadObjectError(Exception):
    """A review whose object we cannot read; *uid* is what an answer must echo."""

    def __init__(self, uid: str, text: str, known: KnownRequest | None = None) -> None:
        """Keep the *uid* and what else is *known* beside the *text*."""
        super().__init__(text)
        self.uid = uid
        self.known = known or KnownRequest(uid=uid)


class PodReview(msgspec.Struct, frozen=True, gc=False):
    """A review worth deciding about: its request and the pod that it certainly carries."""

    request: Request
    pod: Pod


def parse(body: bytes) -> PodReview:
    """Decode one review.

    Raises :class:`NotAReviewError` where the body is not an AdmissionReview v1 with a uid, and
    :class:`BadObjectError` where only the object in it is unreadable.
    """
    request = decode_review(_REVIEW, body).request
    if request.kind.kind != "Pod" or request.kind.group:
        name = f"{request.kind.group[:64]}/{request.kind.kind[:64]}"
        raise BadObjectError(request.uid, f"object is a {name!r}; expected a pod", _known(body))
    if request.object is None:
        text = "request.object is absent; expected a pod"
        raise BadObjectError(request.uid, text, _known(body))
    return PodReview(request, request.object)


def uid_at_start(start: bytes) -> str:
    """Return the uid of a review of which only the *start* was read; empty where it has none.

    The API server writes the uid as the first field of the request.
    """
    found = _UID.match(start)
    return found[1].decode() if found else ""


def decode_review(decoder: msgspec.json.Decoder[EnvelopeT], body: bytes) -> EnvelopeT:
    """Return the AdmissionReview v1 with a uid that *body* is.

    Raises :class:`NotAReviewError` where it is none, and :class:`BadObjectError` where only the
    object in it is unreadable.
    """
    try:
        review = decoder.decode(body)
    except UNREADABLE as error:
        raise _unreadable_error(body, error) from error
    if review.kind != KIND or review.api_version != API_VERSION:
        raise NotAReviewError(
            f"body is {review.api_version[:64]!r} {review.kind[:64]!r}; "
            f"expected {API_VERSION} {KIND}"
        )
    if not review.request.uid:
        raise NotAReviewError("request.uid is empty; expected the uid of the review")
    return review


def _unreadable_error(body: bytes, error: Exception) -> Exception:
    """Say what is wrong with *body*, keeping the uid where there is one."""
    text = str(error)[:256]
    try:
        uid = _ENVELOPE.decode(body).request.uid
    except UNREADABLE:
        return NotAReviewError(f"body is not an AdmissionReview: {text}")
    if not uid:
        return NotAReviewError(f"no request.uid: {text}")
    return BadObjectError(uid, text, _known(body))


def _known(body: bytes) -> KnownRequest | None:
    """Return what *body* says of its request beside the object, ``None`` if that is unreadable."""
    try:
        return _KNOWN.decode(body).request
    except UNREADABLE:
        return None


def allow(
    uid: str,
    *,
    operations: Sequence[Mapping[str, Any]] = (),
    patch: bytes = b"",
    warnings: Sequence[str] = (),
    audit: Mapping[str, str] | None = None,
) -> bytes:
    """Answer that the object may pass, changed by *operations* (RFC 6902), or by their JSON."""
    answer = _answer({"uid": uid, "allowed": True}, warnings, audit)
    if operations:
        patch = orjson.dumps(operations)
    if not patch:
        return answer
    # Base64 needs no encoding, and is most of the answer: it is put in where the response ends.
    text = base64.b64encode(patch)
    return b'%b,"patchType":"JSONPatch","patch":"%b"}}' % (answer[:-2], text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The status of an answer that the object may not pass; *message* is what the user reads."""

    code: int
    message: str
    reason: str


def refuse(
    uid: str,
    refusal: Refusal,
    *,
    warnings: Sequence[str] = (),
    audit: Mapping[str, str] | None = None,
) -> bytes:
    """Answer that the object may not pass."""
    status = {"code": refusal.code, "message": refusal.message, "reason": refusal.reason}
    response: dict[str, Any] = {"uid": uid, "allowed": False, "status": status}
    return _answer(response, warnings, audit)


def _answer(
    response: dict[str, Any], warnings: Sequence[str], audit: Mapping[str, str] | None
) -> bytes:
    if warnings:
        response["warnings"] = list(warnings)
    if audit:
        response["auditAnnotations"] = dict(audit)
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})
