"""All exceptions that calls of the API server raise."""

from typing import Final

import msgspec

LONGEST_MESSAGE: Final = 256  # characters of the server's text that a message of ours may quote


class KubeError(Exception):
    """Any failure of a call of the API server."""


class ConfigError(KubeError):
    """The address of the API server or our credentials cannot be determined."""


class UnreachableError(KubeError):
    """No answer came; ``sent`` is false if the request certainly never left this machine."""

    def __init__(self, message: str, *, sent: bool) -> None:
        """Keep whether the request may have been carried out."""
        super().__init__(message)
        self.sent = sent


class UnreadableError(KubeError):
    """The answer is malformed or larger than we accept."""


class ApiError(KubeError):
    """The API server refused; ``reason`` is its machine-readable one, ``place`` the call."""

    def __init__(self, status: int, reason: str, message: str, *, place: str = "") -> None:
        """Cut *message* to what an error may carry."""
        self.status = status
        self.reason = reason
        self.message = shorten(message)
        self.place = place
        self.retry_after: float | None = None  # seconds
        super().__init__(status, reason, self.message)

    def __str__(self) -> str:
        text = f"{self.status} {self.reason}: {self.message}"
        return f"{self.place}: {text}" if self.place else text


class NotFoundError(ApiError):
    """404: the object, or its kind, does not exist."""


class ConflictError(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExistsError(ApiError):
    """409 on create: the name is taken."""


class GoneError(ApiError):
    """410: the resource version, or the continue token, is too old."""


class InvalidError(ApiError):
    """422: the object or the options fail validation, or a JSON Patch test failed."""


class _Status(msgspec.Struct):
    """The part of ``v1.Status`` that we read."""

    kind: str
    reason: str = ""
    message: str = ""
    code: int = 0


_BY_STATUS: Final = {404: NotFoundError, 409: ConflictError, 410: GoneError, 422: InvalidError}
_OVERLOAD: Final = frozenset({429, 502, 503})
_NO_STATUS: Final = "the answer is not a Status object"
_NO_SUCH_KIND: Final = (
    "the server does not know this kind; a CustomResourceDefinition may be missing"
)


def shorten(text: str) -> str:
    """Cut *text* to :data:`LONGEST_MESSAGE` characters, with an ellipsis where it was cut."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


def refusal(body: bytes | msgspec.Raw, *, status: int = 0, place: str = "") -> ApiError:
    """Turn a ``v1.Status``, the body of a refused call or of an ERROR event, into an error.

    *status* is the HTTP status, 0 to believe the body's own code. A body that is no Status
    (a proxy's page) is not quoted.
    """
    try:
        status_object = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status_object = _Status(kind="")
    if status_object.kind != "Status":
        status_object = _Status(kind="", message=_NO_SUCH_KIND if status == 404 else _NO_STATUS)  # noqa: PLR2004 - HTTP
    status = status or status_object.code
    kind = _BY_STATUS.get(status, ApiError)
    if status_object.reason == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(status, status_object.reason or "Unknown", status_object.message, place=place)


def must_relist(error: KubeError) -> bool:
    """Say whether a watch must list again rather than resume where it was.

    It must after 410, and after 504 "too large resource version", which follows a restore of etcd.
    It also must after any other refusal that is no sign of overload, because resuming could fail in
    the same way for ever.
    """
    if isinstance(error, ApiError):
        return error.status not in _OVERLOAD
    return isinstance(error, UnreadableError)
