"""A pod at a past time: only what was recorded until then counts."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from allocator.replay.recorded_request import RecordedRequest
from allocator.replay.request_fields import encode_request
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from console.history.answers import RecordAnswer
from console.history.past_pod import MOST_EVENTS, PastPod, past_document, past_lines, past_pod
from tests.builders.history import LATER, LIFE, REFUSED, SETTINGS, TRAIN, record
from tests.builders.model import ask, pod

Golden = Callable[[str, str], str]
NAME = TRAIN.pod
# What a controller's pod has: the review that decides knows neither its name nor its uid.
DECIDED = LIFE[0] | {
    "pod": "",
    "pod_uid": "",
    "generate_name": "train-7f9c6d-",
    "mode_source": "best",
    "asked": encode_request(RecordedRequest(request=pod(ask(18000, cores=40)))),
}
CONFIRMED = record(
    "admission", "2026-11-21T08:52:10.200Z", step="validate", outcome="rewritten", mode="mig"
) | {"mode_source": "best"}
EVICTED = record(
    "evicted", "2026-11-21T11:00:01.000Z", component="agent", node="gpu-a01", text="uses too much"
)
RELEASED = record("released", "2026-11-21T11:00:09.000Z", node="gpu-a01", why="over")
TRIED = record(  # another pod of the same name, once this one was over
    "admission",
    "2026-11-21T12:00:00.000Z",
    step="mutate",
    outcome="refused",
    reason="GpuMemoryShort",
    findings=[{"reason": "GpuMemoryShort", "text": REFUSED.text}],
) | {"pod_uid": "", "digest": "p2c8w0r5hd"}
WHOLE = (DECIDED, CONFIRMED, *LIFE[1:], EVICTED, RELEASED, TRIED, SETTINGS, LATER)
MOMENTS = {
    "admitted": "2026-11-21T08:52:11+00:00",
    "waiting": "2026-11-21T09:52:30+01:00",
    "bound": "2026-11-21T08:52:42Z",
    "running": "2026-11-21T11:00:00.500Z",
    "ended": "2026-11-21T11:30:00Z",
    "refused": "2026-11-21T12:25:56Z",
}


def known(
    at: str, records: Sequence[Mapping[str, Any]] = WHOLE, name: str = NAME
) -> PastPod | None:
    answers = [RecordAnswer(record=dict(each), sender="webhook") for each in records]
    return past_pod(answers, name=name, at=datetime.fromisoformat(at))


def text(found: PastPod | None) -> str:
    assert found is not None
    shown = list(map(plain_text, printed_lines(past_lines(found))))
    assert max(map(len, shown)) <= WIDTH
    return "".join(f"{line}\n" for line in shown)


@pytest.mark.parametrize("moment", MOMENTS)
def test_each_moment_is_told_as_reviewed(moment: str, golden: Golden) -> None:
    """In the words of `why`; what came later is not in it."""
    shown = text(known(MOMENTS[moment]))

    assert shown == golden(f"kubectl-why-at-{moment}.txt", shown)


def test_a_document_is_what_docs_promise(golden: Golden) -> None:
    """Keys are public: they are only ever added."""
    found = known(MOMENTS["waiting"])
    assert found is not None
    shown = json.dumps(past_document(found), indent=2)

    assert f"{shown}\n" == golden("kubectl-why-at-waiting.json", f"{shown}\n")


@pytest.mark.parametrize("moment", MOMENTS.values())
def test_nothing_later_changes_what_was_known(moment: str) -> None:
    """Nor does the order in which records arrive, or one that arrives twice."""
    mixed = [*WHOLE, *WHOLE]
    random.Random(1).shuffle(mixed)  # noqa: S311 -- an order, not a secret
    earlier = [
        each
        for each in WHOLE
        if datetime.fromisoformat(each["at"]) <= datetime.fromisoformat(moment)
    ]

    assert text(known(moment, mixed)) == text(known(moment)) == text(known(moment, earlier))


@pytest.mark.parametrize("first", [True, False])
def test_no_record_is_hidden_by_another_with_its_id(*, first: bool) -> None:
    """Whoever may read records knows ids, and an agent may send what it likes of its node."""
    forged = [
        record("started", each["at"], component="agent", node="gpu-a01", container="main")
        | {"id": each["id"], "pod": "other", "pod_uid": "uid-other"}
        for each in WHOLE
    ]
    mixed = (*forged, *WHOLE) if first else (*WHOLE, *forged)
    for moment in MOMENTS.values():
        assert text(known(moment, mixed)) == text(known(moment))


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "another000"},
        {"at": "2026-11-21T08:52:10.900Z"},
        {"outcome": "refused", "reason": "GpuMemoryShort"},
    ],
    ids=["another-request", "a-later-replica", "refused"],
)
def test_a_pod_is_told_with_the_request_of_its_own(changes: Mapping[str, str]) -> None:
    """Other pods of its namespace were reviewed at about the same time."""
    other = DECIDED | {
        "id": "other",
        "at": "2026-11-21T08:52:10.150Z",
        "asked": encode_request(RecordedRequest(request=pod(ask(77)))),
        "rule": "another rule",
    }
    found = known(MOMENTS["running"], (*WHOLE, other | dict(changes)))

    assert found is not None
    assert "other" not in {record.id for record in found.records}
    assert text(found) == text(known(MOMENTS["running"]))


def test_of_two_pods_of_a_name_the_later_is_meant() -> None:
    """As kubectl would have found at that time; the earlier one is not mixed into it."""
    again = [
        each | {"pod_uid": "uid-2", "id": f"{each['id']}-2", "at": each["at"].replace("T08", "T13")}
        for each in (CONFIRMED, LIFE[1])
    ]
    before, after = (
        known("2026-11-21T11:30:00Z", (*WHOLE, *again)),
        known("2026-11-21T14:00:00Z", (*WHOLE, *again)),
    )

    assert before is not None
    assert after is not None
    assert (before.decision.pod_uid, after.decision.pod_uid) == (TRAIN.pod_uid, "uid-2")
    assert text(after).startswith("WAITING ")
    assert "gpu-a01" not in text(after)


def test_before_its_first_record_nothing_was_known() -> None:
    """Neither was anything known of a pod of another name."""
    assert known("2026-11-21T08:52:10.000Z") is None
    assert known("2026-11-22T00:00:00Z", name="other") is None


def test_a_refusal_while_a_pod_lives_hides_nothing() -> None:
    """Somebody who creates a pod of a taken name is refused, and the pod goes on."""
    taken = TRIED | {"at": "2026-11-21T10:00:00.000Z"}

    assert text(known("2026-11-21T10:30:00Z", (*WHOLE, taken))).startswith("RUNNING ")


def test_a_start_that_was_refused_is_the_headline() -> None:
    """A pod that is bound and does not start would look like one that is about to."""
    refused = record(
        "start-refused", "2026-11-21T08:52:42.500Z", component="agent", node="gpu-a01",
        container="main", text="no MIG instance yet",
    )  # fmt: skip

    shown = text(known("2026-11-21T08:52:43Z", (*WHOLE, refused)))

    assert shown.startswith('FAILING   container "main" does not start: no MIG instance yet\n')


def test_many_events_are_counted() -> None:
    """The latest are shown."""
    changes = [
        record("waiting", f"2026-11-21T08:52:{20 + n}.000Z", state="changed", reason=f"r{n}")
        | {"id": f"w{n}"}
        for n in range(MOST_EVENTS + 3)
    ]
    shown = text(known("2026-11-21T08:52:35Z", (*WHOLE, *changes)))

    assert shown.count("waiting: waits") == MOST_EVENTS
    assert "and 5 earlier" in shown


HOSTILE = (
    "\x1b[2J", "\x1b]0;x\x07", "a\nWAITING   b", "\r", "\u202eabc", "\u2066", "\x00", "\x9b31m",
    "<script>", "${jndi:x}", "x" * 5000, "\ud83d", "'; DROP TABLE record", "%s%n",
)  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_hostile_texts_stay_texts(value: str) -> None:
    """A record is what somebody sent: no line is made or steered by it."""
    broken = [
        each
        | {
            key: value
            for key in ("text", "reason", "rule", "mode_source", "digest", "container", "node")
            if key in each
        }
        for each in WHOLE
    ]
    for moment in MOMENTS.values():
        lines = text(known(moment, broken)).splitlines()
        assert all(line.isprintable() for line in lines)
        assert sum(not line.startswith(" ") for line in lines) <= 10


@pytest.mark.parametrize(
    "changes",
    [
        {"at": "yesterday"}, {"at": ""}, {"at": None}, {"kind": "x"}, {"kind": None}, {"id": 7},
        {"pod_uid": []}, {"asked": 7}, {"containers": "main"}, {"component": "nobody"},
    ],
    ids=str,
)  # fmt: skip
def test_a_record_that_cannot_be_read_is_left_out(changes: Mapping[str, object]) -> None:
    """The others are told as if it were not there."""
    odd = DECIDED | {"id": "odd"} | dict(changes)

    assert text(known(MOMENTS["running"], (*WHOLE, odd))) == text(known(MOMENTS["running"]))
