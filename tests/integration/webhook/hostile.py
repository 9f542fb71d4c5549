"""What strangers send to the webhook: bad bodies made of good and forged ones."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from allocator.config.settings import DEFAULTS
from tests.builders.gpunodes import Json
from tests.builders.malformed import Good, good, malformed
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import (
    CORES,
    GPU_MEM,
    MEMORY,
    NUMBER,
    PERCENT,
    admitted,
    container,
    pod,
    received,
)
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.webhook.replica import FULL, NAMES, PODS
from tests.model.tenants import KEYS, LISTS, TEXTS
from webhook.admission.context import AdmissionContext

BASES: Final = 300  # of each endpoint, forged in different ways
WAITING: Final = tuple(f"waits-{number}" for number in range(4))
ASKED: Final = 3000  # MiB, by each pod that waits
NO_STATE: Final[Json] = {}
STATES: Final[Mapping[str, Json]] = {  # of pods that cannot be bound
    "done": {"status": {"phase": "Succeeded"}, "spec": {"nodeName": "n0"}},
    "failed": {"status": {"phase": "Failed"}},
    "bound": {"spec": {"nodeName": FULL}},
    "gated": {"spec": {"schedulingGates": [{"name": "wait"}]}},
    "deleting": {"metadata": {"deletionTimestamp": "2026-11-21T17:00:00Z"}},
}
HARMFUL: Final = (  # names that lead elsewhere, or nowhere
    "../x",
    "a/b?x=1#",
    "../../../../api/v1/namespaces/kube-system/pods?x=",
    "%2e%2e/\r\nHost: b",
    "x" * 300,
)
STRANGER: Final = "stranger"  # becomes another one in each payload
GONE: Final = "gone"
AMOUNTS: Final = ("0", "-1", "1e99", "9" * 40, "0.5", "8Gi", "101", "3k", "", "∞", 3000, -1, 2**62)
_AROUND: Final = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(nodes_of(8)))
_MANY: Final = tuple(f"far-{number}" for number in range(120))  # as many as a sample of a cluster


@dataclass(frozen=True, slots=True)
class Site:
    """The pods that there are, by name, as the API server has them."""

    pods: Mapping[str, Json]

    def any(self, rng: random.Random) -> Json:
        return copy.deepcopy(self.pods[rng.choice(sorted(self.pods))])


def peopled(server: ApiServer) -> Site:
    """Put pods in every state on *server*: four that may be bound, and all that may not."""
    asking = admitted(received(pod(container(limits={NUMBER: 1, MEMORY: ASKED}))), _AROUND)
    for name, state in {**STATES, **dict.fromkeys(WAITING, NO_STATE)}.items():
        written = copy.deepcopy(asking)
        for part, fields in state.items():
            written.setdefault(part, {}).update(fields)
        written["metadata"]["name"] = name
        server.objects.create(parsed(PODS), written)
    for name, limits in {"plain": {}, "odd": {NUMBER: 1, MEMORY: "-7"}}.items():
        written = received(pod(container(limits=limits)))
        written["metadata"]["name"] = name
        server.objects.create(parsed(PODS), written)
    found = server.objects.at(parsed(PODS))
    return Site({item["metadata"]["name"]: copy.deepcopy(item) for item in found})


def forged(found: Json, rng: random.Random) -> Json:
    """Return a pod with annotations, labels and amounts that a tenant made up."""
    metadata = found["metadata"]
    annotations = metadata.setdefault("annotations", {})
    for key in rng.sample(KEYS, rng.randint(0, 4)):
        annotations[key] = rng.choice((*TEXTS, *LISTS))
    if rng.random() < 0.5:
        metadata["labels"] = {rng.choice(KEYS): rng.choice(TEXTS)}
    if rng.random() < 0.4:
        named = rng.sample((NUMBER, MEMORY, PERCENT, CORES, GPU_MEM), 2)
        limits = {name: rng.choice(AMOUNTS) for name in named}
        found["spec"]["containers"][0]["resources"] = {"limits": limits}
    if rng.random() < 0.2:
        found["spec"]["containers"] *= rng.choice((0, 2, 40))
    if rng.random() < 0.3:
        metadata[rng.choice(("uid", "name", "namespace"))] = rng.choice(("", STRANGER, *HARMFUL))
    return found


def envelope(found: object, number: int, **request: object) -> Json:
    """Return an AdmissionReview of *found*."""
    fields = {
        "uid": f"review-{number}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "team-a",
        "userInfo": {"username": "eve", "groups": ["system:masters", "system:authenticated"]},
        "object": found,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return {**body, "request": {**fields, **request}}


def pods_reviewed(site: Site, rng: random.Random) -> list[Good]:
    """Return reviews of pods: as users write them, as they come back, and forged."""
    return [good(_pod_review(site, rng, number)) for number in range(BASES)]


def _pod_review(site: Site, rng: random.Random, number: int) -> Json:
    written = received(pod(container(limits={NUMBER: 1, MEMORY: ASKED})))
    found = forged(rng.choice((site.any(rng), written)), rng)
    more: Json = {"namespace": STRANGER} if rng.random() < 0.3 else {}
    if rng.random() < 0.5:
        more["oldObject"] = site.any(rng)
    if rng.random() < 0.1:
        more["kind"] = {"group": "apps", "version": "v1", "kind": "Deployment"}
    return envelope(found, number, **more)


def workloads_reviewed(site: Site, rng: random.Random) -> list[Good]:
    """Return reviews of Deployments and of Volcano's jobs, with forged templates."""
    found = (forged(site.any(rng), rng) for _ in range(BASES))
    return [
        good(workload_review(template, number, kind=rng.choice(("Deployment", "Job"))))
        for number, template in enumerate(found)
    ]


def workload_review(template: Json, number: int, *, kind: str = "Deployment") -> Json:
    """Return a review of a workload that makes pods by *template*."""
    version = "apps/v1" if kind == "Deployment" else "batch.volcano.sh/v1alpha1"
    spec: Json = {"replicas": 3, "template": template}
    written = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "w"},
        "spec": spec if kind == "Deployment" else {"tasks": [spec, spec]},
    }
    group, _, short = version.partition("/")
    return envelope(written, number, kind={"group": group, "version": short, "kind": kind})


def bindings_reviewed(site: Site, rng: random.Random) -> list[Good]:
    """Return reviews of Bindings, most of which can be served for no pod or on no node."""
    hopeless = [good(binding_review(site, rng, number)) for number in range(BASES)]
    return [*hopeless, *(good(binding_review(site, rng, 0, pod=name)) for name in WAITING[1:] * 6)]


def binding_review(site: Site, rng: random.Random, number: int, *, pod: str = "") -> Json:
    """Return one, forged; *pod* is a waiting one to be bound as it should be."""
    name = pod or rng.choice((*site.pods, GONE, STRANGER))
    found = site.pods.get(name, {"metadata": {"uid": STRANGER}})
    node = rng.choice(NAMES) if pod or name not in WAITING else rng.choice(("n9", "", "N0"))
    uid = found["metadata"]["uid"] if pod or rng.random() < 0.5 else rng.choice(("", STRANGER))
    brought = {key: rng.choice((*TEXTS, *LISTS)) for key in rng.sample(KEYS, 3)}
    bound = {
        "metadata": {"name": name, "uid": uid, "annotations": brought},
        "target": {"kind": "Node", "name": node},
    }
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    return envelope(bound, number, kind=kind, name=name, dryRun=False)


def questions(site: Site, rng: random.Random) -> list[Good]:
    """Return what is asked of filter and prioritize: by name and in full, about few and many."""
    return [good(_question(site, rng)) for _ in range(BASES)]


def _question(site: Site, rng: random.Random) -> Json:
    names = rng.choice(([*NAMES, FULL], [*NAMES, GONE], ["n9"], [], [*_MANY, "n0"], list(_MANY)))
    found = forged(site.any(rng), rng)
    if rng.random() < 0.3:
        found["spec"]["priority"] = rng.choice((0, 2**31 - 1, -(2**31)))
    if rng.random() < 0.2:
        found["status"] = {"nominatedNodeName": rng.choice(("n0", "n9", "../x"))}
    if rng.random() < 0.3:
        items = [{"metadata": {"name": name}} for name in names]
        return {"Pod": found, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    return {"Pod": found, "Nodes": None, "NodeNames": names}


def preemptions(site: Site, rng: random.Random) -> list[Good]:
    """Return what is asked of preempt, with victims that are there, and that are not."""
    return [good(_preemption(site, rng)) for _ in range(BASES)]


def _preemption(site: Site, rng: random.Random) -> Json:
    uids = [found["metadata"]["uid"] for found in site.pods.values()]
    named = rng.sample([*uids, STRANGER, ""], 3)
    nodes = rng.sample([*NAMES, "n9", "", "../x"], 3)
    found = {"Pod": forged(site.any(rng), rng)}
    if rng.random() < 0.5:
        meta = {"Pods": [{"UID": uid} for uid in named], "NumPDBViolations": 0}
        return {
            **found,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": dict.fromkeys(nodes, meta),
        }
    whole = {"Pods": [{"metadata": {"uid": uid}} for uid in named], "NumPDBViolations": 1}
    return {
        **found,
        "NodeNameToVictims": dict.fromkeys(nodes, whole),
        "NodeNameToMetaVictims": None,
    }


def binds(site: Site, rng: random.Random) -> list[Good]:
    """Return what is asked of bind: pods that cannot be bound, and uids of others."""
    return [good(_bind(site, rng)) for _ in range(BASES)]


def _bind(site: Site, rng: random.Random) -> Json:
    name = rng.choice((*site.pods, GONE, "../x", "a/b", "p?x=1"))
    uid = "another" if name in (*WAITING, "plain", "odd") else rng.choice((STRANGER, ""))
    namespace = rng.choice(("team-a", "team-b", "..", ""))
    return {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": rng.choice(NAMES)}


def payloads(bases: list[Good], rng: random.Random, count: int) -> Iterator[bytes]:
    """Yield so many bad bodies, with strangers that nobody has heard of before."""
    for number in range(count):
        stranger = f"{STRANGER}-{number}".encode()
        yield malformed(rng.choice(bases), rng).replace(STRANGER.encode(), stranger)


Bases = Callable[[Site, random.Random], list[Good]]


def readable(body: bytes) -> Any:  # noqa: ANN401 -- any JSON
    """Return what *body* says by a strict reader, ``None`` where it has nothing to say."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def doubled(body: bytes) -> bool:
    """Say whether an object in *body* has a key twice: readers differ about what it says."""
    found = False

    def members(pairs: list[tuple[str, object]]) -> Json:
        nonlocal found
        found = found or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    json.loads(body, object_pairs_hook=members)
    return found
