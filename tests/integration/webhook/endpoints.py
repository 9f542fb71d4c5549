"""The webhook's endpoints that take a body: what is sent there, how it is judged, what it may do.

Nothing else of ours that listens reads one: the health port and the rest of the first have GETs of
``/healthz``, ``/readyz`` and ``/metrics`` only.
"""

import copy
import random
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import orjson

from allocator.cluster.inventory import GPU_NODES
from tests.builders.pods import MEMORY, NUMBER, Json, container, pod, received
from tests.fakes.api_server import Request
from tests.integration.webhook import hostile, verdicts
from tests.integration.webhook.hostile import ASKED, WAITING, Bases, Site
from tests.integration.webhook.replica import FULL, NAMES
from tests.integration.webhook.verdicts import Said, patched

EVENT: Final = re.compile(r"/apis/events\.k8s\.io/v1/namespaces/[a-z0-9.-]+/events")
HINT: Final = re.compile(r"/api/v1/namespaces/[a-z0-9-]+/pods/[a-z0-9.-]+/status")
BINDINGS: Final = re.compile(r"/api/v1/namespaces/[a-z0-9.-]+/pods/[a-z0-9.-]+/binding")

Judge = Callable[[Said], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path, what is sent there, and how an answer is judged."""

    port: str
    bases: Bases
    judge: Judge
    good: Callable[[Site], Json]
    fine: Callable[[Any], bool]
    writes: Callable[[Request], bool] = lambda _: False
    changes: Collection[str] = ()
    tries: int = 1  # more where an answer may not come in time on a busy machine


def good_review(_: Site) -> Json:
    return hostile.envelope(received(pod(container(limits={NUMBER: 1, MEMORY: ASKED}))), 0)


def good_end(site: Site) -> Json:
    found = site.pods[WAITING[0]]
    return hostile.envelope(found, 0, oldObject=found, operation="UPDATE")


def good_workload(_: Site) -> Json:
    return hostile.workload_review(received(pod(container(limits={MEMORY: ASKED}))), 0)


def good_binding(site: Site) -> Json:
    found = hostile.binding_review(site, random.Random(0), 0, pod=WAITING[0])  # noqa: S311 -- no secrets
    found["request"]["dryRun"] = True
    return found


def good_question(site: Site) -> Json:
    return {"Pod": site.pods[WAITING[0]], "Nodes": None, "NodeNames": [*NAMES, "n9"]}


def good_scoring(site: Site) -> Json:
    return good_question(site) | {"NodeNames": [*NAMES, FULL, "n9"]}


def good_preemption(site: Site) -> Json:
    victims = {"Pods": [{"UID": site.pods["bound"]["metadata"]["uid"]}], "NumPDBViolations": 0}
    found = copy.deepcopy(site.pods[WAITING[0]])
    found["spec"]["priority"] = 10
    return {"Pod": found, "NodeNameToMetaVictims": {FULL: victims}}


def good_bind(_: Site) -> Json:
    return {"PodName": "gone", "PodNamespace": "team-a", "PodUID": "u", "Node": "n0"}


def allows(found: Any) -> bool:  # noqa: ANN401 -- any JSON
    response = found["response"]
    uid, allowed = response["uid"], response["allowed"]
    return bool(uid == "review-0" and allowed is True)


def told(request: Request) -> bool:
    """Say whether a write is an Event, or hints at a node to a pod, and lands among these."""
    body: Json = orjson.loads(request.body)
    if body.get("kind") == "Event":
        return EVENT.fullmatch(request.path) is not None
    hints = body.keys() == {"metadata", "status"} and bool(body["metadata"]["uid"])
    return hints and HINT.fullmatch(request.path) is not None


def promised(request: Request) -> bool:
    return request.path in {f"{GPU_NODES}/{name}" for name in NAMES}


def posted(request: Request) -> bool:
    return BINDINGS.fullmatch(request.path) is not None


ENDPOINTS: Final = {
    "/mutate/pods": Endpoint(
        port="admission",
        bases=hostile.pods_reviewed,
        judge=verdicts.a_review,
        good=good_review,
        fine=lambda found: allows(found) and bool(patched(found["response"])),
    ),
    "/validate/pods": Endpoint(
        port="admission",
        bases=hostile.pods_reviewed,
        judge=verdicts.a_review,
        good=good_end,
        fine=allows,
    ),
    "/mutate/pods/ephemeralcontainers": Endpoint(
        port="admission",
        bases=hostile.pods_reviewed,
        judge=verdicts.a_review,
        good=good_end,
        fine=allows,
    ),
    "/validate/workloads": Endpoint(
        port="admission",
        bases=hostile.workloads_reviewed,
        judge=verdicts.a_warning,
        good=good_workload,
        fine=allows,
    ),
    "/mutate/bindings": Endpoint(
        port="admission",
        bases=hostile.bindings_reviewed,
        judge=verdicts.a_review,
        good=good_binding,
        fine=lambda found: allows(found) and "/metadata/uid" in patched(found["response"]),
        writes=promised,
        changes=("spec.entries",),
        tries=10,
    ),
    "/extender/filter": Endpoint(
        port="extender",
        bases=hostile.questions,
        judge=verdicts.a_filter,
        good=good_question,
        fine=lambda found: found["NodeNames"] == list(NAMES),
        writes=told,
        changes=("status.nominatedNodeName", "metadata.annotations"),
    ),
    "/extender/prioritize": Endpoint(
        port="extender",
        bases=hostile.questions,
        judge=verdicts.a_priority,
        good=good_scoring,
        fine=lambda found: [one["Host"] for one in found] == [FULL],
    ),
    "/extender/preempt": Endpoint(
        port="extender",
        bases=hostile.preemptions,
        judge=verdicts.a_preemption,
        good=good_preemption,
        fine=lambda found: found["NodeNameToMetaVictims"].keys() == {FULL},
    ),
    "/extender/bind": Endpoint(
        port="extender",
        bases=hostile.binds,
        judge=verdicts.a_bind,
        good=good_bind,
        fine=lambda found: "not found" in found["Error"],
        writes=posted,
        changes=("spec.nodeName",),
    ),
}
