"""Forms: which are read, and how much of them."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.requests import Request

from console.access.login_server import LARGEST_FORM, MOST_FIELDS, form_fields


class SentForm:
    """A form that comes in *parts*; ``read`` counts those that were taken."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts, self.read = parts, 0

    async def receive(self) -> dict[str, object]:
        self.read += 1
        more = self.read < len(self.parts)
        return {"type": "http.request", "body": self.parts[self.read - 1], "more_body": more}

    def fields(self) -> dict[str, str] | None:
        kind = (b"content-type", b"application/x-www-form-urlencoded")
        scope = {"type": "http", "method": "POST", "path": "/login", "headers": [kind]}
        return asyncio.run(form_fields(Request(scope, self.receive)))


def test_a_form_may_be_just_so_large() -> None:
    """In however many parts it comes."""
    value = "a" * (LARGEST_FORM - len("token="))

    assert SentForm([b"token=", value.encode()]).fields() == {"token": value}
    assert SentForm([b"token=", value.encode(), b"a"]).fields() is None


def test_a_form_without_end_is_not_read_to_it() -> None:
    """One part more than is accepted is enough to know."""
    form = SentForm([b"a" * LARGEST_FORM] * 1000)

    assert form.fields() is None
    assert form.read == 2


@pytest.mark.parametrize(
    "body",
    [
        b"token=a&token=b",
        b"token=&token=b",
        b"token=b&token=",
        b"token=%ff",
        b"\xff=a",
        b"&".join(b"f%d=" % number for number in range(MOST_FIELDS + 1)),
    ],
)
def test_a_form_that_could_be_read_in_two_ways_is_none(body: bytes) -> None:
    """Each field is there once, also one that is empty."""
    assert SentForm([body]).fields() is None


def test_an_empty_field_is_there() -> None:
    """And there are as many fields as are accepted."""
    body = b"&".join(b"f%d=" % number for number in range(MOST_FIELDS))

    assert SentForm([body]).fields() == {f"f{number}": "" for number in range(MOST_FIELDS)}
