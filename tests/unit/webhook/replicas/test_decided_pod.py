"""What records share is kept with a decision, for reviews that are recorded alike."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from webhook.admission.outcome import Untouched
from webhook.replicas.decided_pod import DecidedPass, DecidedPod, RecordEnd
from webhook.review.admission_review import Request, UserInfo

REQUEST = Request(
    uid="r-1",
    operation="CREATE",
    namespace="team-a",
    user_info=UserInfo(username="amy", groups=("a", "b")),
)
ONE = DecidedPass(
    request=REQUEST,
    decided=DecidedPod(Untouched(), None),
    caller=("path",),
    settings="s",
    snapshot="f",
    step="mutate",
    at=datetime(2026, 5, 4, 12, tzinfo=UTC),
    seconds=0.0,
    age=None,
)
UNLIKE = {
    "operation": replace(ONE, request=replace(REQUEST, operation="UPDATE")),
    "namespace": replace(ONE, request=replace(REQUEST, namespace="team-b")),
    "user": replace(ONE, request=replace(REQUEST, user_info=UserInfo("bo", ("a", "b")))),
    "groups": replace(ONE, request=replace(REQUEST, user_info=UserInfo("amy", ("a", "c")))),
    "no-groups": replace(ONE, request=replace(REQUEST, user_info=UserInfo("amy"))),
    "caller": replace(ONE, caller=()),
    "step": replace(ONE, step="ephemeral"),
}
OWN = {
    "uid": replace(ONE, request=replace(REQUEST, uid="r-2")),
    "name": replace(ONE, request=replace(REQUEST, name="p")),
    "settings": replace(ONE, settings="t"),
    "snapshot": replace(ONE, snapshot="e"),
    "time": replace(ONE, at=datetime(2026, 5, 4, 13, tzinfo=UTC), seconds=1.0, age=2.0),
}


@pytest.mark.parametrize("other", UNLIKE.values(), ids=UNLIKE)
def test_a_review_that_differs_has_another_end(other: DecidedPass) -> None:
    """In each thing that an end tells of a review beside its pod."""
    assert not RecordEnd(ONE, b"1").is_of(other)
    assert not RecordEnd(other, b"1").is_of(ONE)


@pytest.mark.parametrize("other", OWN.values(), ids=OWN)
def test_what_each_record_has_of_its_own_changes_no_end(other: DecidedPass) -> None:
    """It stands before the end."""
    assert RecordEnd(ONE, b"1").is_of(other)


@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        (REQUEST, True),
        (replace(REQUEST, namespace="n" * 253), True),
        (replace(REQUEST, namespace="n" * 600), False),
        (replace(REQUEST, operation="o" * 600), False),
        (replace(REQUEST, user_info=UserInfo("u" * 600)), False),
        (replace(REQUEST, user_info=UserInfo(groups=("g" * 40,) * 16)), False),
        (replace(REQUEST, user_info=UserInfo(groups=("g",) * 16)), True),
        (replace(REQUEST, user_info=UserInfo(groups=("",) * 17)), False),
    ],
)
def test_what_is_large_is_not_kept(request_: Request, *, kept: bool) -> None:
    """What is kept was counted before a review came with many groups."""
    decided = DecidedPod(Untouched(), None)
    decided.keep(RecordEnd(replace(ONE, request=request_), b"1"))

    assert (decided.end is not None) is kept
