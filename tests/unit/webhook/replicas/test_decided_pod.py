"""What records share is kept with a decision, for reviews that are recorded alike."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders.passes import with_fields
from webhook.admission.outcome import Untouched
from webhook.replicas.decided_pod import DecidedPass, DecidedPod, RecordEnd
from webhook.replicas.surroundings import PassContext, ReviewUser
from webhook.review.admission_review import Request, UserInfo

REQUEST = Request(
    uid="r-1",
    operation="CREATE",
    namespace="team-a",
    user_info=UserInfo(username="amy", groups=("a", "b")),
)
PROGRAM = ("webhook", "w", "1")


def context_of(**fields: Any) -> PassContext:  # noqa: ANN401 -- of any field
    usual = {"caller": ("path",), "step": "mutate", "settings": "s", "snapshot": "f"}
    return PassContext(PROGRAM, **usual | fields)


CONTEXT = context_of()
ONE = DecidedPass(
    request=REQUEST,
    decided=DecidedPod(Untouched(), None),
    context=CONTEXT,
    at=1_777_896_000_000,
    seconds=0.0,
    age=None,
)
UNLIKE = {
    "operation": with_fields(ONE, request=replace(REQUEST, operation="UPDATE")),
    "namespace": with_fields(ONE, request=replace(REQUEST, namespace="team-b")),
    "user": with_fields(ONE, request=replace(REQUEST, user_info=UserInfo("bo", ("a", "b")))),
    "groups": with_fields(ONE, request=replace(REQUEST, user_info=UserInfo("amy", ("a", "c")))),
    "no-groups": with_fields(ONE, request=replace(REQUEST, user_info=UserInfo("amy"))),
    "caller": with_fields(ONE, context=context_of(caller=())),
    "step": with_fields(ONE, context=context_of(step="ephemeral")),
    "settings": with_fields(ONE, context=context_of(settings="t")),
}
OWN = {
    "uid": with_fields(ONE, request=replace(REQUEST, uid="r-2")),
    "name": with_fields(ONE, request=replace(REQUEST, name="p")),
    "time": with_fields(ONE, at=1_777_899_600_000, seconds=1.0, age=2.0),
    "context-of-the-same": with_fields(ONE, context=context_of()),
}


def is_of(end: RecordEnd, other: DecidedPass) -> bool:
    context = other.context
    return end.is_of(
        other.request, caller=context.caller, step=context.step, settings=context.settings
    )


def end_of(decision: DecidedPass) -> RecordEnd:
    end = RecordEnd(decision)
    assert end.complete(ReviewUser(decision.request.user_info), b"1", b"\n")
    return end


@pytest.mark.parametrize("other", UNLIKE.values(), ids=UNLIKE)
def test_a_review_that_differs_has_another_end(other: DecidedPass) -> None:
    """In each thing that an end tells of a review beside its pod, also before it is made."""
    for one, another in ((ONE, other), (other, ONE)):
        assert not is_of(end_of(one), another)
        assert not is_of(RecordEnd(one), another)


@pytest.mark.parametrize("other", OWN.values(), ids=OWN)
def test_what_each_record_has_of_its_own_changes_no_end(other: DecidedPass) -> None:
    """It stands before the end."""
    assert is_of(end_of(ONE), other)
    assert is_of(RecordEnd(ONE), other)
