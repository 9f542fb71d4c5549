"""B.1: GPUs that nobody granted, as the API server stores a pod that asks for nothing.

The API server hides GPUs by the policy that the leader publishes, and by our hook, which may fail
or be made to fail. Both are tried together, each alone, and on a server that serves no such policy.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final

import msgspec

from allocator.catalog.conditions import MOST_VARIABLES
from allocator.catalog.keys import OPT_IN_LABEL, OPT_IN_VALUE
from benchmarks.hostile_door import door
from benchmarks.hostile_doors_pods import CONTEXT, VISIBLE
from manifests.generator.documents import FILES
from manifests.generator.registrations import registrations
from tests.authorization.mutations import mutated
from tests.authorization.policies import EvaluationError, Policies, Review, value_of
from tests.builders.pods import container, patched, pod, received, typed
from webhook.admission import ephemeral_containers
from webhook.admission.decide import decide
from webhook.admission.outcome import Refused

Json = dict[str, Any]
POLICIES: Final = Policies(FILES["base/policies.yaml"])
HOOKS: Final = {hook["name"].split(".vgpu")[0]: hook for hook in registrations()[0]["webhooks"]}
HIDDEN: Final = ("", "none", "void")  # what shows no GPU
FIELD: Final = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
FILLER: Final = [{"name": f"A{number}"} for number in range(MOST_VARIABLES)]
NAMING: Final[dict[str, list[Json]]] = {
    "nothing": [],
    "another variable": [{"name": "A", "value": "b"}],
    "all": [{"name": VISIBLE, "value": "all"}],
    "an index": [{"name": VISIBLE, "value": "0"}],
    "a field": [{"name": VISIBLE, **FIELD}],
    "void, then all": [{"name": VISIBLE, "value": "void"}, {"name": VISIBLE, "value": "all"}],
    "all, then void": [{"name": VISIBLE, "value": "all"}, {"name": VISIBLE, "value": "void"}],
    "void with a blank": [{"name": VISIBLE, "value": "void "}],
    "behind a large one": [
        {"name": "BIG", "value": "<" * 1_250_000},
        {"name": VISIBLE, "value": "all"},
    ],
    # The evaluator here ends after 10,000 steps, which the API server's does not.
    "behind many": [*FILLER[:2000], {"name": VISIBLE, "value": "all"}],
    "behind more than are searched": [*FILLER, {"name": VISIBLE, "value": "all"}],
    "nothing among many": FILLER[:2000],
}
LIMITS: Final[dict[str, Json]] = {
    "no limits": {},
    "zero of another plugin": {"nvidia.com/gpu": "0"},
    "a network card": {"nvidia.com/hostdev": "1"},
    "zero of ours": {"volcano.sh/vgpu-number": "0"},
}
# Whether the API server serves the policy, and whether our hook answers.
SERVERS: Final = {
    "policy and hook": (True, True),
    "policy alone": (True, False),
    "hook alone": (False, True),
    "neither": (False, False),
}


@door
def gpus_by_name() -> Iterator[str]:
    """B.1: no container that was given no GPU sees one, whatever it says, whoever answers."""
    for (asked, limits), (how, env), where in product(
        LIMITS.items(), NAMING.items(), ("containers", "initContainers")
    ):
        subject = container("subject", limits=limits, env=env)
        written = pod(subject) if where == "containers" else pod(container(), init=[subject])
        for server in SERVERS:
            stored = _stored(received(written), server)
            if stored is not None and _is_seen(stored["spec"][where], server):
                yield f"{asked}, {how} in {where}: {server}"


@door
def gpus_of_debug_containers() -> Iterator[str]:
    """B.1: a debug container sees none either, in a pod of before the policy."""
    before = received(pod(container()))
    before["metadata"]["name"] = "p"
    old = container("old")
    before["spec"]["ephemeralContainers"] = [old]
    for how, env in NAMING.items():
        after = before | {"spec": {**before["spec"]}}
        after["spec"]["ephemeralContainers"] = [old, container("debug", env=env)]
        for server in SERVERS:
            stored = _stored(after, server, old=before)
            if stored is None:
                continue
            added = [c for c in stored["spec"]["ephemeralContainers"] if c["name"] == "debug"]
            if _is_seen(added, server):
                yield f"{how}: {server}"


@door
def pods_that_no_hook_reviews() -> Iterator[str]:
    """B.1: each pod is sent to the hook that must answer or to the other, and only to one."""
    for asked, limits in {**LIMITS, "a slice": {"volcano.sh/vgpu-memory": "1"}}.items():
        written = pod(container(limits=limits))
        called = [name for name in ("pods", "others") if _is_called(name, written)]
        if len(called) != 1:
            yield f"{asked}: {called}"


def _stored(found: Json, server: str, *, old: Json | None = None) -> Json | None:
    """Return a pod as it is stored by a *server*, or ``None`` where it is refused."""
    policy, hook = SERVERS[server]
    must, may = ("ephemeral", "others.ephemeral") if old else ("pods", "others")
    try:
        if policy:
            found = mutated(found, old=old)
        if _is_called(must, found) or (hook and _is_called(may, found)):
            reviewed = _reviewed(found, old)
            if reviewed is None:
                return None
            found = reviewed
        if policy:
            found = mutated(found, old=old)
    except EvaluationError:
        return None
    return None if _is_refused(found, old) else found


def _is_called(name: str, found: Json) -> bool:
    return all(
        value_of(condition["expression"], {"object": found}) is True
        for condition in HOOKS[name]["matchConditions"]
    )


def _reviewed(found: Json, old: Json | None) -> Json | None:
    """Return what our hook makes of a pod, ``None`` where it refuses it, also as unreadable."""
    try:
        outcome = (
            decide(typed(found), CONTEXT)
            if old is None
            else ephemeral_containers.decide(typed(found), typed(old), CONTEXT)
        )
    except msgspec.ValidationError:
        return None
    return None if isinstance(outcome, Refused) else patched(found, outcome)


def _is_refused(found: Json, old: Json | None) -> bool:
    """Say whether a policy that the installation applies refuses a pod."""
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request: Json = {
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": resource,
        "namespace": "team-a",
        "name": "p",
        "userInfo": {"username": "tenant", "groups": ["system:authenticated"]},
        **({} if old is None else {"subResource": "ephemeralcontainers"}),
    }
    labels = {OPT_IN_LABEL: OPT_IN_VALUE}
    review = Review(request=request, object=found, old=old, namespace=labels)
    return any("Deny" in finding.actions for finding in POLICIES.findings(review))


def _is_seen(containers: Iterable[Json], server: str) -> bool:
    """Say whether one of *containers* sees a GPU.

    Without the variable the image decides, against which a server of that kind alone has no means
    while our hook is down.
    """
    for each in containers:
        said = [entry for entry in each.get("env", ()) if entry["name"] == VISIBLE]
        if any("valueFrom" in entry or entry.get("value", "") not in HIDDEN for entry in said):
            return True
        if not said and server != "neither":
            return True
    return False
