"""Records of workloads: who wrote the template that a pod comes of."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.pods import Json
from tests.harness.records import KeptRecords
from tests.unit.webhook.workload.test_workload_server import AROUND, deployment, review
from webhook.workload.audit_record import LARGEST, template_digest
from webhook.workload.workload_server import WorkloadHandler

ALICE: Json = {"username": "alice@example.org", "groups": ["team-a", "system:authenticated"]}
OWNER: Json = {"kind": "Deployment", "name": "d", "uid": "uid-d", "controller": True}
OTHER: Json = {"kind": "Budget", "name": "b", "uid": "uid-b"}


def recorded(body: bytes) -> tuple[KeptRecords, list[str]]:
    """Return what a review leaves behind, and its warnings."""
    kept = KeptRecords()
    handler = WorkloadHandler(
        context_of=lambda _: AROUND,
        count_review=lambda _: None,
        observe_seconds=lambda _: None,
        journal=kept,
    )
    answer = orjson.loads(handler.warn(body))["response"]
    return kept, answer.get("warnings", [])


def named(memory: int = 3000, **metadata: object) -> Json:
    return {**deployment(memory), "metadata": {"name": "d", "uid": "uid-d", **metadata}}


def test_who_applied_a_template_is_recorded() -> None:
    """With the uid of the object, by which its pods name it."""
    (record,), _ = recorded(review(named(), operation="UPDATE", userInfo=ALICE))

    assert (record["operation"], record["namespace"]) == ("UPDATE", "team-a")
    assert record["object"] == {"kind": "Deployment", "name": "d", "uid": "uid-d"}
    assert record["user"] == "alice@example.org"
    assert list(record["groups"]) == ["team-a", "system:authenticated"]
    assert len(record["template"]) == 32


def test_a_dry_run_is_not_recorded() -> None:
    """Nothing was applied."""
    kept, warnings = recorded(review(named(90000), dryRun=True))

    assert kept == []
    assert len(warnings) == 1


def test_what_a_controller_made_leads_on_to_its_owner() -> None:
    """A pod names its ReplicaSet, and that its Deployment; a controller reads no warnings."""
    made = named(90000, uid="uid-r", ownerReferences=[OTHER, OWNER])
    (record,), warnings = recorded(review({**made, "kind": "ReplicaSet"}))

    assert [owner["uid"] for owner in record["owners"]] == ["uid-d", "uid-b"]
    assert warnings == []


@pytest.mark.parametrize(
    "spec",
    [
        {"template": {"spec": {"containers": []}}},
        {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}},
        {"tasks": [{"template": {"spec": {"containers": []}}}]},
    ],
)
def test_a_template_has_a_digest_wherever_it_stands(spec: Json) -> None:
    """In a Deployment, a CronJob or a Job of Volcano; the rest of the object does not count."""
    one = template_digest(orjson.dumps({"spec": spec}))
    scaled = template_digest(orjson.dumps({"spec": {**spec, "replicas": 7}, "kind": "X"}))

    assert len(one) == 32
    assert one == scaled


def test_a_template_is_compared_by_its_content() -> None:
    """However its keys are ordered."""
    one, same, other = (
        template_digest(orjson.dumps({"spec": {"template": template}}))
        for template in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3})
    )

    assert one == same
    assert one != other


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"spec": 7}',
        b'{"spec": {"tasks": {}}}',
        b'{"spec": {"template": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"spec": {"template": "' + b"x" * LARGEST + b'"}}',
        b'{"spec": {"template": "\xff"}}',
    ],
)
def test_what_cannot_be_compared_has_no_digest(raw: bytes) -> None:
    """And does no harm."""
    assert template_digest(raw) == ""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


@given(
    user=st.text(),
    metadata=st.dictionaries(st.text(), JSON_VALUES) | st.fixed_dictionaries({"name": st.text()}),
    spec=JSON_VALUES,
)
def test_any_object_leaves_a_record_that_can_be_read(
    user: str, metadata: dict[str, Any], spec: object
) -> None:
    """Or none; KeptRecords checks each by the schema."""
    made = {"kind": "Job", "metadata": metadata, "spec": spec}

    kept, _ = recorded(review(made, userInfo={"username": user}))

    assert len(kept) <= 1
