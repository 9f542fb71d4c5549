"""Whether an answer has the form that its protocol asks for, and fits what was asked."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tests.builders.pods import Json
from tests.integration.webhook.hostile import doubled, readable

REVIEW: Final = ("admission.k8s.io/v1", "AdmissionReview")


@dataclass(frozen=True, slots=True)
class Said:
    """One exchange."""

    body: bytes
    status: int
    answer: bytes

    def __str__(self) -> str:
        return f"{self.status} {self.answer[:300]!r} to {self.body[:1500]!r}"


def a_review(told: Said) -> None:
    """Assert that a review got an AdmissionReview with its uid, and what is none was told so."""
    sent, text = readable(told.body), told.answer
    asked = sent.get("request") if isinstance(sent, dict) else None
    uid = asked.get("uid") if isinstance(asked, dict) else None
    if told.status == 400:
        assert text.strip(), told
        if isinstance(uid, str) and uid and not doubled(told.body):
            assert (sent.get("apiVersion"), sent.get("kind")) != REVIEW, told
        return
    assert told.status == 200, told
    found = orjson.loads(text)
    response = found["response"]
    assert found.keys() == {"apiVersion", "kind", "response"}, told
    assert (found["apiVersion"], found["kind"]) == REVIEW, told
    assert isinstance(response["uid"], str), told
    assert sent is None or response["uid"] == uid, told
    if response["allowed"] is True:
        patched(response)
    else:
        assert response["allowed"] is False, told
        assert response["status"].keys() == {"code", "message", "reason"}, told
        assert 400 <= response["status"]["code"] < 500, told
        assert response["status"]["message"], told


def a_warning(told: Said) -> None:
    """Assert that a review is allowed as it is, with few and short warnings."""
    a_review(told)
    if told.status == 200:
        response = orjson.loads(told.answer)["response"]
        assert response.keys() <= {"uid", "allowed", "warnings"}, told
        assert response["allowed"] is True, told
        lines = response.get("warnings", [])
        assert len(lines) <= 4, told
        assert all(len(line) <= 256 and line.isprintable() for line in lines), told


def patched(response: Json) -> Json:
    """Return the operations of an answer by path."""
    if "patch" not in response:
        return {}
    assert response["patchType"] == "JSONPatch"
    ops = orjson.loads(base64.b64decode(response["patch"]))
    return {op["path"]: op.get("value") for op in ops}


def a_question(told: Said, keys: set[str]) -> Any:  # noqa: ANN401 -- any JSON
    """Return the answer to a question that could be read, ``None`` for one that could not."""
    if told.status == 400:
        assert told.answer.strip(), told
        return None
    assert told.status == 200, told
    found = json.loads(told.answer)
    assert not keys or found.keys() == keys, told
    return found


def names_of(told: Said) -> list[str] | None:
    """Return which nodes a question was about, ``None`` where no strict reader can say."""
    sent = readable(told.body)
    if sent is None:
        return None
    nodes = sent.get("Nodes")
    if nodes is None:
        return list(sent.get("NodeNames") or ())
    return [item["metadata"]["name"] for item in nodes.get("items") or ()]


def a_filter(told: Said) -> None:
    """Assert that each node that was asked about is in one of three places."""
    keys = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    found = a_question(told, keys)
    if found is None:
        return
    assert found["Error"] == "", told
    assert (found["Nodes"] is None) != (found["NodeNames"] is None), told
    fitting = found["NodeNames"]
    if fitting is None:
        fitting = [item["metadata"]["name"] for item in found["Nodes"]["items"]]
    failed = [*found["FailedNodes"], *found["FailedAndUnresolvableNodes"]]
    asked = names_of(told)
    if asked is not None:
        assert sorted({*fitting, *failed}) == sorted(set(asked)), told
    assert not set(fitting) & set(failed), told


def a_priority(told: Said) -> None:
    """Assert that nodes have scores up to 10, and none that was not asked about, nor one twice."""
    found = a_question(told, set())
    if found is None:
        return
    assert all(one.keys() == {"Host", "Score"} and 0 < one["Score"] <= 10 for one in found), told
    asked = names_of(told)
    if asked is not None:
        hosts = [one["Host"] for one in found]
        assert set(hosts) <= set(asked), told
        assert len(hosts) <= len(asked), told


def a_preemption(told: Said) -> None:
    """Assert that victims are on nodes that the scheduler named."""
    found = a_question(told, {"NodeNameToMetaVictims"})
    if found is None:
        return
    victims = found["NodeNameToMetaVictims"]
    sent = readable(told.body)
    if sent is not None:
        asked = {
            **(sent.get("NodeNameToVictims") or {}),
            **(sent.get("NodeNameToMetaVictims") or {}),
        }
        assert victims.keys() <= asked.keys(), told
    for one in victims.values():
        assert one.keys() == {"Pods", "NumPDBViolations"}, told
        assert all(pod.keys() == {"UID"} for pod in one["Pods"] or ()), told


def a_bind(told: Said) -> None:
    """Assert that it is said whether the pod was bound."""
    found = a_question(told, {"Error"})
    assert found is None or isinstance(found["Error"], str), told
