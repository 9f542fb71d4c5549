"""Requests as records keep them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.catalog.vocabularies import GPUSHARE, VOLCANO
from allocator.model.request import Filters
from allocator.replay.content import ReplayContentError
from allocator.replay.request_codec import (
    LONGEST_REQUEST,
    RecordedRequest,
    decode_request,
    encode_request,
)
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import ask, pod
from tests.builders.recorded import WORDS, recorded_requests

PLAIN = encode_request(RecordedRequest(request=pod(ask(4000, cores=30))))


@given(st.data())
def test_a_request_reads_back(data: st.DataObject) -> None:
    """What was recorded is what was decided about, also after a way through JSON."""
    words = data.draw(WORDS)
    recorded = data.draw(recorded_requests(words))

    fields = msgspec.json.decode(msgspec.json.encode(encode_request(recorded)))

    assert decode_request(fields, words) == recorded


def test_a_common_request_is_short() -> None:
    """Every decision carries one, so what is at its default is left out."""
    assert PLAIN == {
        "vocabulary": "volcano",
        "containers": [["main", 0, "app", 1, 4000, None, 30]],
    }


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
def test_text_that_a_terminal_obeys_is_not_kept(text: str) -> None:
    """Such a request cannot be replayed, but nobody is shown what it would do."""
    hostile = RecordedRequest(request=pod(ask(1), filters=Filters(models=(text,))))

    assert encode_request(hostile) == {}


def test_a_request_longer_than_others_is_not_kept() -> None:
    """A tenant does not fill the store."""
    long = RecordedRequest(request=pod(ask(1), filters=Filters(uuids=("x" * LONGEST_REQUEST,))))

    assert encode_request(long) == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vocabulary": "other"}, "vocabulary 'other' is not known; accepted: volcano, gpushare"),
        ({"containers": []}, "length >= 1"),
        ({"containers": [["a", 0, "app", -1]]}, r"\$.containers\[0\]\[3\]"),
        ({"containers": [["a", 0, "app", 1, 5, 5]]}, "'a' has MiB and a percentage"),
        ({"containers": [["a", 0, "late", 1]]}, "Invalid enum value 'late'"),
        ({"mode": "soft"}, "Invalid enum value 'soft'"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, object], why: str) -> None:
    """An error says which field is wrong."""
    with pytest.raises(ReplayContentError, match=why):
        decode_request({**PLAIN, **change}, (VOLCANO, GPUSHARE))
