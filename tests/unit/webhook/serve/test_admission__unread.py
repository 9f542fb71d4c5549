"""Reviews of pods that could not be read: each leaves a note of what is known of it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from allocator.config.settings import Settings
from allocator.model.gpu import Snapshot
from tests.builders.pods import container, pod
from tests.properties.test_hostile_reviews import review
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.review.unread_review import UnreadReview
from webhook.serve.admission import LARGEST_BODY, AdmissionApp, PodHandler
from webhook.serve.metrics import WebhookMetrics

CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"))


class Unread(list[UnreadReview]):
    """What was noted by an app that has hooks for pods alone."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()

        def view(_: str) -> AdmissionView:
            if broken:
                raise RuntimeError("a bug")
            return AdmissionView(context=CONTEXT)

        self.app = AdmissionApp(
            PodHandler(
                view=view,
                records=None,
                metrics=WebhookMetrics(version="0"),
                note_unread=self.append,
            )
        )

    def send(self, body: bytes, hook: str = "/mutate/pods") -> tuple[int, bytes]:
        """Send a body that is here at once."""
        answer = self.app.at_once(hook.encode())
        assert answer is not None
        return answer(body)

    def stream(self, *parts: bytes, hook: str = "/mutate/pods") -> int:
        """Send a body in parts, and return the status."""
        left, sent = list(parts), list[Mapping[str, Any]]()

        async def receive() -> dict[str, Any]:
            part = left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(left)}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": hook}
        asyncio.run(self.app(scope, receive, send))
        status: int = sent[0]["status"]
        return status


def changed(**fields: object) -> bytes:
    """Return a review some fields of whose request are replaced."""
    document = json.loads(review(pod(container())))
    document["request"] |= fields
    return json.dumps(document).encode()


WHOSE = {"userInfo": {"username": "amy", "groups": ["devs"]}, "namespace": "team-a", "name": "p"}


def test_of_an_unreadable_pod_all_else_is_known() -> None:
    """The uid, who asked, for which namespace, and how large it was."""
    unread, body = Unread(), changed(uid="r-1", object={"metadata": {"name": 7}}, **WHOSE)

    status, _ = unread.send(body)

    (noted,) = unread
    assert status == 200
    assert (noted.uid, noted.namespace, noted.name, noted.user) == ("r-1", "team-a", "p", "amy")
    assert (noted.groups, noted.operation, noted.step) == (("devs",), "CREATE", "mutate")
    assert noted.size == len(body)
    assert "Expected `str" in noted.why


@pytest.mark.parametrize(
    ("hook", "step"),
    [
        ("/mutate/pods", "mutate"),
        ("/validate/pods", "validate"),
        ("/mutate/pods/ephemeralcontainers", "ephemeral"),
    ],
)
def test_each_pass_says_which_it_was(hook: str, step: str) -> None:
    """Of a body that is no review, too."""
    unread = Unread()

    unread.send(changed(object=None), hook)
    unread.send(b"{", hook)

    assert [noted.step for noted in unread] == [step, step]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\x00", b"null", b"[]", b'"x"', b"{" * 100_000, b"\xff\xfe", b"<html>", b"{}"),
        *(b'{"request":{"uid":7}}', b'{"request":{"uid":""}}', b'{"request":null}'),
        b'{"kind":"AdmissionReview","request":{"uid":"\x1b[2J"}}',
    ],
    ids=lambda body: ascii(body[:24]),
)
def test_a_body_that_is_no_review_is_noted(body: bytes) -> None:
    """It has no uid to answer to; the API server sends none, so somebody else knows the path."""
    unread = Unread()

    status, _ = unread.send(body)

    (noted,) = unread
    assert status == 400
    assert (noted.uid, noted.size, noted.reason) == ("", len(body), "UnreadablePod")


def test_fields_beside_the_object_that_are_odd_hide_nothing() -> None:
    """Without them the uid is known, and it is no dry run."""
    unread = Unread()

    unread.send(changed(uid="r-2", object=None, name=["x"], dryRun="maybe", userInfo=7))

    assert [(noted.uid, noted.user, noted.dry_run) for noted in unread] == [("r-2", "", False)]


def test_a_dry_run_is_said_to_be_one() -> None:
    """Whoever records them leaves it out."""
    unread = Unread()

    unread.send(changed(object=None, dryRun=True))

    assert [noted.dry_run for noted in unread] == [True]


def test_of_one_that_is_too_large_the_start_is_known() -> None:
    """The rest is not read."""
    unread, body = Unread(), changed(uid="r-3")
    start = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"r-3"'

    status = unread.stream(start, b"x" * LARGEST_BODY, b"never read", body)

    (noted,) = unread
    assert status == 200
    assert (noted.uid, noted.size) == ("r-3", len(start) + LARGEST_BODY)
    assert str(LARGEST_BODY) in noted.why


def test_an_error_of_ours_is_noted_without_its_text() -> None:
    """The log has more; who may read records need not see what is in there."""
    unread = Unread(broken=True)

    status, _ = unread.send(changed(uid="r-4"))

    (noted,) = unread
    assert (status, noted.reason) == (500, "InternalError")
    assert "a bug" not in noted.why


def test_a_review_that_was_read_is_noted_by_its_record_alone() -> None:
    """There is no error."""
    unread = Unread()

    assert unread.send(changed())[0] == 200

    assert unread == []
