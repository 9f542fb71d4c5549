"""Reviews of workloads: objects that create pods, kept as they came."""

from typing import Final

import msgspec

from webhook.review.admission_review import BadObjectError, UserInfo, decode_review


class WorkloadRequest(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The request under review; ``object`` is JSON that nobody has looked into yet."""

    uid: str
    operation: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")


class _WorkloadReview(msgspec.Struct, frozen=True, rename="camel", gc=False):
    request: WorkloadRequest
    api_version: str = ""
    kind: str = ""


_REVIEW: Final = msgspec.json.Decoder(_WorkloadReview)


def parse(body: bytes) -> WorkloadRequest:
    """Decode one review of a workload; raises as :func:`decode_review` does."""
    return decode_review(_REVIEW, body).request


def object_text(request: WorkloadRequest) -> str:
    """Return the object as text; raises :class:`BadObjectError` where it is none."""
    try:
        return bytes(request.object).decode()
    except UnicodeDecodeError as error:
        raise BadObjectError(request.uid, str(error)) from error
