"""Refusals become errors that tell what the server said, and no more than that."""

import json

import pytest

from kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    refusal,
)


def status(code: int, reason: str, message: str = "no") -> bytes:
    document = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        pytest.param(404, "NotFound", NotFoundError, id="not-found"),
        pytest.param(409, "Conflict", ConflictError, id="conflict"),
        pytest.param(409, "AlreadyExists", AlreadyExistsError, id="already-exists"),
        pytest.param(410, "Expired", GoneError, id="gone"),
        pytest.param(422, "Invalid", InvalidError, id="invalid"),
        pytest.param(403, "Forbidden", ApiError, id="anything-else"),
    ],
)
def test_kind(code: int, reason: str, expected: type[ApiError]) -> None:
    """Each refusal that a caller may want to tell apart has its own type."""
    error = refusal(status(code, reason), status=code)

    assert type(error) is expected
    assert (error.status, error.reason) == (code, reason)


def test_an_error_event_brings_its_own_status() -> None:
    """Inside a 200 stream the code of the body counts."""
    assert isinstance(refusal(status(410, "Expired")), GoneError)


def test_a_long_message_is_shortened() -> None:
    """An error carries at most 256 characters of foreign text."""
    error = refusal(status(500, "InternalError", "x" * 9000), status=500)

    assert len(error.message) == 256
    assert error.message.endswith("x…")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>secret</html>", id="html"),
        pytest.param(b'{"kind":"Secret","message":"secret"}', id="another-kind"),
        pytest.param(b'{"kind":1,"message":"secret"}', id="wrong-types"),
        pytest.param(b'{"kind":"\xff\xfesecret"}', id="no-utf-8"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_is_no_status_is_not_quoted(body: bytes) -> None:
    """A proxy's page or somebody's object never ends up in a message of ours."""
    error = refusal(body, status=502, place="GET /api")

    assert "secret" not in str(error)
    assert str(error).startswith("GET /api: 502 ")


def test_a_kind_that_does_not_exist_is_told() -> None:
    """For an unknown kind the server answers in plain text; we say what is probably wrong."""
    error = refusal(b"404 page not found\n", status=404)

    assert isinstance(error, NotFoundError)
    assert "CustomResourceDefinition" in error.message
