"""Records of admission: by the schema, bounded and plain, whoever wrote what on a pod."""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocator.audit.lines import LARGEST, line_of
from allocator.audit.record import AdmissionRecord, AdmissionVerdict
from allocator.catalog.keys import ASKED_KEY, DECISION_KEY
from allocator.config.settings import Settings
from allocator.model.gpu import Snapshot
from allocator.model.untrusted import inert, is_plain
from allocator.replay.request_codec import decode_request
from tests.builders.pods import CORES, MEMORY, NUMBER, Json, container, pod, received
from tests.harness.records import KeptRecords, strict_record
from tests.properties.test_hostile_reviews import review
from webhook.admission.audit_record import changes_json
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.records.pass_records import PassRecords
from webhook.review.admission_review import NotAReviewError
from webhook.review.json_patch import encoded, pointer_token
from webhook.serve.admission import PodHandler
from webhook.serve.metrics import WebhookMetrics

VIEW = AdmissionView(
    context=AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True),
    settings_digest="s",
    age=1.5,
)
TENANTS = "hunter2"
ODD = st.text(max_size=20) | st.sampled_from(
    ["\x1b[2J", "\u202e", "\ud800", "\x00", "\x7f\x9b", "a" * 300, "<script>", "'; DROP TABLE x--"]
).map(lambda text: text * 400)


NOW = 1_777_896_000 * 10**9  # nanoseconds since 1970


class Lines(list[bytes]):
    def remember(self, record: Any, /) -> None:  # noqa: ANN401 -- as a sink has it
        line = line_of(record)
        assert line is not None
        self.append(line)


def handler(sink: Lines | KeptRecords) -> PodHandler:
    return PodHandler(
        view=lambda _: VIEW,
        records=PassRecords(sink, now=lambda: NOW, fleet_digest=lambda *_: "f" * 32),
        metrics=WebhookMetrics(version="0"),
    )


def recorded(found: Json, step: str = "mutate", **request: object) -> list[AdmissionRecord]:
    """Return the records of one review of pod *found*."""
    kept = Lines()
    body = review(found, namespace="team-a", operation="CREATE", **request)
    getattr(handler(kept), step)(body)
    records = [strict_record(line) for line in kept]
    return [record for record in records if isinstance(record, AdmissionRecord)]


def asking(**amounts: object) -> Json:
    limits = amounts or {NUMBER: 1, MEMORY: 3000}
    return received(pod(container(limits=limits, env=[{"name": "TOKEN", "value": TENANTS}])))


def test_a_record_says_what_was_asked_decided_and_changed() -> None:
    """With the values that are ours; the request is in it, so that it can be decided again."""
    (record,) = recorded(asking())

    assert record.outcome is AdmissionVerdict.REWRITTEN
    assert [(one.name, one.stage, one.memory_mib) for one in record.containers] == [
        ("main", "main", 3000)
    ]
    assert (record.snapshot, record.settings, record.snapshot_age_seconds) == ("f" * 32, "s", 1.5)
    assert decode_request(record.asked).request.containers[0].memory == 3000
    values = {change.path: change.value for change in record.changes}
    assert values["/spec/containers/0/env/-"]


def test_no_value_of_a_tenant_is_recorded() -> None:
    """Neither of a variable, nor what an annotation repeats of the request."""
    made = asking()
    (record,) = recorded(made)
    (annotated,) = recorded(
        {**made, "metadata": {**made["metadata"], "annotations": {"a": TENANTS}}}
    )

    written = {str(one.path): one.value for one in annotated.changes}
    key = f"/metadata/annotations/{ASKED_KEY.replace('/', '~1')}"
    assert key in written
    assert not isinstance(written[key], str)
    assert ASKED_KEY not in record.changes[0].value
    assert DECISION_KEY in record.changes[0].value
    for one in (record, annotated):
        assert TENANTS not in str(one)


def test_a_patch_of_many_containers_is_recorded_in_part() -> None:
    """The record stays small; the first changes tell what was done."""
    many = [container(f"c{n}", limits={NUMBER: 1, MEMORY: 10}) for n in range(12)]
    (record,) = recorded(received(pod(*many)))

    assert 0 < len(record.changes) <= 51
    assert len(record.containers) == 12


def test_the_validating_pass_is_short_and_knows_the_pod() -> None:
    """Its name and uid, and by the digest which decision it is about."""
    kept = KeptRecords()
    made = asking()
    answer = orjson.loads(handler(kept).mutate(review(made, namespace="team-a")))
    assert answer["response"]["allowed"]
    stored = {**made, "metadata": {**made["metadata"], "name": "p-x7", "uid": "uid-p"}}
    records = recorded(stored, "validate", name="p-x7")

    (record,) = records
    assert (record.step, record.pod, record.pod_uid) == ("validate", "p-x7", "uid-p")
    assert (record.changes, record.asked, record.snapshot) == ((), {}, "")


@pytest.mark.parametrize(
    ("amounts", "reason"),
    [
        pytest.param({NUMBER: 1, CORES: 140}, "GpuCoresShort", id="unreadable"),
        pytest.param({NUMBER: 1, MEMORY: "x"}, "MalformedRequest", id="malformed"),
    ],
)
def test_a_refusal_has_its_reasons(amounts: dict[str, object], reason: str) -> None:
    """In the words that the user read."""
    (record,) = recorded(asking(**amounts))

    assert (record.outcome, record.reason) == (AdmissionVerdict.REFUSED, reason)
    assert record.findings[0].reason == reason
    assert record.digest


def test_a_dry_run_leaves_nothing() -> None:
    """Nobody is told of what did not happen."""
    assert recorded(asking(), dryRun=True) == []


def texts(found: object) -> Iterator[str]:
    """Return each text in *found*, names of fields too."""
    match found:
        case dict():
            yield from found
            for value in found.values():
                yield from texts(value)
        case list() | tuple():
            for item in found:
                yield from texts(item)
        case str():
            yield found
        case _:
            pass


@pytest.mark.parametrize("odd", ["\0", "\x1b", "\n", "\x7f", "\u202e", '"', "\\"])
def test_a_record_is_plain_whichever_text_of_its_pod_is_odd(odd: str) -> None:
    """The API server checks names after us, so a container's may hold anything."""
    made = asking()
    made["metadata"] |= {
        "name": "<name>",
        "generateName": "<prefix>",
        "uid": "<uid>",
        "labels": {"<label>": "<value>"},
        "annotations": {"<key>": "<text>", "volcano.sh/vgpu-mode": "hami-core"},
        "ownerReferences": [{"kind": "<kind>", "name": "<owner>", "uid": "<owner-uid>"}],
    }
    made["spec"]["containers"][0]["name"] = "<container>"
    spec = orjson.dumps(made).decode()
    places = sorted({text for text in texts(made) if text.startswith("<")})
    assert len(places) == 11

    for place in places:
        changed = spec.replace(place, orjson.dumps(f"x{odd}").decode()[1:-1])
        (record,) = recorded(orjson.loads(changed))
        assert record.outcome is AdmissionVerdict.REWRITTEN, (place, record.findings)
        shown = texts(msgspec.to_builtins(record))
        assert [text for text in shown if not is_plain(text)] == [], place


@settings(max_examples=60, deadline=None)
@given(
    names=st.fixed_dictionaries({}, optional={"name": ODD, "generateName": ODD, "uid": ODD}),
    annotations=st.dictionaries(
        st.sampled_from(["nvidia.com/use-gputype", "vgpu-admission.io/mode", ASKED_KEY]) | ODD, ODD
    ),
    owner=st.fixed_dictionaries({"kind": ODD, "name": ODD, "uid": ODD}),
    people=st.fixed_dictionaries({"username": ODD, "groups": st.lists(ODD, max_size=40)}),
    named=st.fixed_dictionaries({"container": ODD, "namespace": ODD, "operation": ODD}),
)
def test_whatever_a_tenant_writes_the_record_is_bounded_and_plain(
    **written: Json,
) -> None:
    """A terminal obeys none of it, and a store can take it."""
    made = asking()
    named = written["named"]
    made["metadata"] = {
        **written["names"],
        "annotations": written["annotations"],
        "ownerReferences": [written["owner"]] * 9,
    }
    made["spec"]["containers"][0]["name"] = named.pop("container")
    kept = Lines()
    with contextlib.suppress(NotAReviewError):  # half a character is no JSON
        handler(kept).mutate(review(made, userInfo=written["people"], **named))

    for line in kept:
        assert len(line) <= LARGEST
        assert is_plain(line.decode().rstrip("\n"))
        strict_record(line)


ASKED_OPERATION = {"op": "add", "path": f"/metadata/annotations/{pointer_token(ASKED_KEY)}"}
WRITES_ASKED = {**ASKED_OPERATION, "value": '{"mode":"mig"}'}


def annotation_operation(name: str, value: str) -> Json:
    return {"op": "add", "path": f"/metadata/annotations/{name}", "value": value}


OPERATIONS = st.sampled_from(
    [
        WRITES_ASKED,
        {**ASKED_OPERATION, "op": "remove"},
        *(
            annotation_operation(name, value)
            for name in ("a", "\x7f", "\n", "\u202e", "\\", "\u00e9")
            for value in ("b", "\\", "\x7f", "\n")
        ),
    ]
)


@example([annotation_operation("\x7f", "b"), WRITES_ASKED])
@example([WRITES_ASKED, annotation_operation("a", "b")])
@example([annotation_operation("a", "b"), {**ASKED_OPERATION, "op": "remove"}])
@example([annotation_operation("a", "b")] * 49 + [WRITES_ASKED, annotation_operation("a", "b")])
@given(st.lists(OPERATIONS, max_size=5) | st.lists(OPERATIONS, min_size=48, max_size=53))
def test_operations_on_annotations_are_recorded_without_what_was_asked(ops: list[Json]) -> None:
    """And those at odd places without their value, whichever comes last."""
    shown = [
        {
            "op": op["op"],
            "path": inert(op["path"]),
            **({"value": op["value"]} if is_shown_whole(op) else {}),
        }
        for op in ops[:50]
    ]

    assert orjson.loads(changes_json(encoded(ops))) == shown


def is_shown_whole(op: Json) -> bool:
    return "value" in op and op["path"] != ASKED_OPERATION["path"] and is_plain(op["path"])


ANNOTATION = annotation_operation("a", "b")
ASKED_SHOWN = {"op": "add", "path": WRITES_ASKED["path"]}
MOUNT = {"op": "add", "path": "/spec/containers/0/volumeMounts/-", "value": {"subPath": "a"}}
LARGE = {**MOUNT, "value": {"subPath": "a" * 9000}}


@pytest.mark.parametrize(
    ("ops", "shown"),
    [
        ([], []),
        ([ANNOTATION], [ANNOTATION]),
        ([MOUNT], [MOUNT]),
        ([ANNOTATION, MOUNT], [ANNOTATION, MOUNT]),
        ([WRITES_ASKED], [ASKED_SHOWN]),
        ([WRITES_ASKED, MOUNT], [ASKED_SHOWN, MOUNT]),
        ([ANNOTATION, WRITES_ASKED, MOUNT], [ANNOTATION, ASKED_SHOWN, MOUNT]),
        ([ANNOTATION] * 50 + [WRITES_ASKED], [ANNOTATION] * 50),
        ([LARGE], []),
        ([ANNOTATION, LARGE], [ANNOTATION]),
        ([ANNOTATION, MOUNT, LARGE], [ANNOTATION, MOUNT]),
    ],
    ids=[
        *("none", "annotations", "mounts", "both", "asked", "asked-first", "all", "many"),
        *("large", "large-last", "large-after"),
    ],
)
def test_a_patch_is_sent_whole_and_recorded_within_bounds(
    ops: list[Json], shown: list[Json]
) -> None:
    """Whether it has operations on annotations, others, both or none."""
    patch = encoded(ops)

    assert orjson.loads(patch.text) == ops
    assert len(patch.text) - len("[,,]") <= patch.size <= len(patch.text)
    assert orjson.loads(changes_json(patch)) == shown


@pytest.mark.parametrize("odd", ["\x7f", "\x9b", "\u202e", "\u3164"])
def test_a_change_that_holds_what_nobody_sees_is_recorded_without_its_value(odd: str) -> None:
    """JSON leaves such a character as it is, and a value may name a container of a tenant's."""
    path = "/spec/containers/0/volumeMounts/-"
    patch = encoded([{"op": "add", "path": path, "value": {"subPath": f"a{odd}"}}])

    assert orjson.loads(changes_json(patch)) == [{"op": "add", "path": path}]
