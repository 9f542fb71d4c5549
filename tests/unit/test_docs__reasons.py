"""Each example in docs/reasons.md is what the product says to such a pod."""

import re
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import orjson
import pytest

from allocator.catalog.reason_texts import HAMI_NAMES, REASON_TEXTS
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import DEFAULTS, FleetScope, settings_of
from allocator.model.decision import Finding, Reason
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.placement.choose import choose
from tests.builders.groups import SupernodeCluster
from tests.builders.model import (
    A30,
    A100_40,
    A100_80,
    T4,
    ask,
    gpu,
    node,
    nodes_of,
    snapshot,
    soft_grant,
)
from tests.builders.model import pod as request_of
from tests.builders.pods import (
    CORES,
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
    Json,
    container,
    decided,
    pod,
    received,
    typed,
)
from tests.unit.test_docs import DOCS
from webhook.admission import ephemeral_containers
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm
from webhook.admission.outcome import Outcome, Refused
from webhook.review.admission_review import BadObjectError, parse

ROWS = dict(re.findall(r"(?m)^\| `(\w+)` \|.*\| `(.+)` \|$", (DOCS / "reasons.md").read_text()))
SETTINGS = msgspec.structs.replace(DEFAULTS, fleet=FleetScope.CLOSED)
LARGEST = nodes_of(1, A100_80, name="a100-80")
A100S = nodes_of(8, A100_40, name="a100-40")
GPU = {NUMBER: 1, MEMORY: 3000}
CREATED: Mapping[Reason, tuple[Json, tuple[Node, ...]]] = {
    Reason.MALFORMED: (pod(container(limits={NUMBER: 1, MEMORY: "8Gi"})), (A100S,)),
    Reason.CONFLICTING: (pod(container(limits={NUMBER: 1, MEMORY: 8000, PERCENT: 50})), (A100S,)),
    Reason.MEMORY_SHORT: (pod(container(limits={NUMBER: 1, MEMORY: 90000})), (LARGEST,)),
    Reason.CORES_SHORT: (pod(container(limits={NUMBER: 1, CORES: 140})), (A100S,)),
    Reason.NO_GEOMETRY: (
        pod(container(limits={NUMBER: 1, MEMORY: 24400}), annotations={MODE: "mig"}),
        (nodes_of(8, A30, mode=Mode.MIG), A100S),
    ),
    Reason.MODE_UNAVAILABLE: (pod(container(limits=GPU), annotations={MODE: "smi"}), (A100S,)),
    Reason.MODEL_UNAVAILABLE: (
        pod(container(limits=GPU), annotations={"nvidia.com/use-gputype": "H100"}),
        (A100S,),
    ),
    Reason.TOO_MANY: (pod(container(limits={NUMBER: 16, MEMORY: 3000})), (A100S,)),
    Reason.RESERVED_VARIABLE: (
        pod(container(limits=GPU, env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "1"}])),
        (A100S,),
    ),
    Reason.RESERVED_MOUNT: (
        pod(container(limits=GPU, volumeMounts=[{"name": "etc", "mountPath": "/etc"}])),
        (A100S,),
    ),
    Reason.RESERVED_ANNOTATION: (
        pod(container(limits=GPU), annotations={"volcano.sh/vgpu-ids-new": "x"}),
        (A100S,),
    ),
    Reason.NODE_NAME: (pod(container(limits=GPU), nodeName="gpu-1"), (A100S,)),
    Reason.PRIVILEGED: (
        pod(container(limits=GPU, securityContext={"privileged": True})),
        (A100S,),
    ),
    Reason.PRIORITY: (
        pod(container(limits=GPU), annotations={"vgpu-admission.io/task-priority": "high"}),
        (A100S,),
    ),
}


def context(*nodes: Node) -> AdmissionContext:
    return AdmissionContext(settings=SETTINGS, snapshot=snapshot(*nodes), host_paths=True)


def first(outcome: Outcome) -> Finding:
    assert isinstance(outcome, Refused)
    return outcome.findings.first


@pytest.mark.parametrize("reason", CREATED)
def test_a_pod_is_refused_as_the_page_says(reason: Reason) -> None:
    """A reader who compares the words finds them."""
    written, there = CREATED[reason]

    finding = first(decided(written, context(*there)))

    assert (finding.reason, str(finding)) == (reason, ROWS[reason])


def test_a_namespace_demands_as_the_page_says() -> None:
    """So is a namespace that admits only MIG."""
    policy = NamespacePolicy(min_isolation="mig")
    demand = msgspec.structs.replace(context(A100S), namespace=policy)

    finding = first(decided(pod(container(limits=GPU), annotations={MODE: "hami-core"}), demand))

    assert (finding.reason, str(finding)) == (Reason.ISOLATION, ROWS[Reason.ISOLATION])


@pytest.mark.parametrize(
    ("reason", "there"),
    [
        pytest.param(
            Reason.SHARES_SHORT, node("a", gpu(T4, grants=[soft_grant(100)] * 10)), id="shares"
        ),
        pytest.param(Reason.UNHEALTHY, node("a", replace(gpu(T4), healthy=False)), id="unhealthy"),
    ],
)
def test_a_pod_waits_as_the_page_says(reason: Reason, there: Node) -> None:
    """What can change refuses no pod; the same words are in Events."""
    choice = choose(snapshot(there), request_of(ask(1000)))

    assert (choice.findings[0].reason, str(choice.findings[0])) == (reason, ROWS[reason])


def test_a_pod_of_another_class_waits_as_the_page_says() -> None:
    """A GPU keeps the policy of the pods on it."""
    taken = msgspec.structs.replace(soft_grant(100), share="best-effort")
    container_request = msgspec.structs.replace(ask(1000), share="fixed-share")

    choice = choose(snapshot(node("a", gpu(T4, grants=[taken]))), request_of(container_request))

    finding = choice.findings[0]
    assert (finding.reason, str(finding)) == (Reason.SHARE_CLASS, ROWS[Reason.SHARE_CLASS])


def test_a_vocabulary_is_left_out_as_the_page_says() -> None:
    """The warning at CREATE has the same words."""
    settings = settings_of("vocabularies: [volcano]")
    served = configured_vocabularies(settings, DeviceConfig())
    narrow = msgspec.structs.replace(context(A100S), settings=settings, vocabularies=served)

    finding = first(decided(pod(container(limits=GPU | {"aliyun.com/gpu-mem": 2})), narrow))

    assert (finding.reason, str(finding)) == (Reason.UNSERVED, ROWS[Reason.UNSERVED])


def test_a_debug_container_is_refused_as_the_page_says() -> None:
    """It is added to a pod that runs already."""
    before = received(pod())
    debug = {"name": "debug", "image": "example.com/d:1", "resources": {"limits": {MEMORY: "1"}}}
    after = before | {"spec": before["spec"] | {"ephemeralContainers": [debug]}}

    outcome = ephemeral_containers.decide(typed(after), typed(before), context(A100S))

    assert str(first(outcome)) == ROWS[Reason.EPHEMERAL]


def test_an_incomplete_injection_is_refused_as_the_page_says() -> None:
    """A pod that passed no mutating hook of ours has nothing of the injection."""
    outcome = confirm(typed(received(pod())), context(A100S))

    assert first(outcome).reason is Reason.INCOMPLETE
    assert _without_pointer(str(first(outcome))) == _without_pointer(ROWS[Reason.INCOMPLETE])


def _without_pointer(text: str) -> str:
    return re.sub(r"/\S+(?=;)", "", text)


def test_another_object_is_refused_as_the_page_says() -> None:
    """A webhook configuration of somebody else may send us anything."""
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    request = {"uid": "u", "kind": kind, "operation": "CREATE", "object": received(pod())}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    with pytest.raises(BadObjectError) as raised:
        parse(orjson.dumps(body))

    assert ROWS[Reason.UNREADABLE].endswith(f": {raised.value}")


def test_a_group_waits_as_the_page_says() -> None:
    """A bind is denied in the same words as an Event tells them."""
    cluster = SupernodeCluster()
    cluster.make("a", "a-0", "a-1", "a-2", "a-3", size=32)
    cluster.place("other", "n1")
    cluster.place("another", "n6")

    assert f'node "n1": {cluster.refusal("a-0", "n1")}' == ROWS[Reason.GROUP]


def test_the_console_shows_the_same() -> None:
    """The page and the console have one source, for each reason there is."""
    text = (DOCS / "reasons.md").read_text()
    rows = [f"| `{r}` | {t.meaning} | `{t.example}` |" for r, t in REASON_TEXTS.items()]

    assert [row for row in rows if row not in text] == []
    assert [f"| {h} | {r} |" for h, r in HAMI_NAMES.items() if f"| {h} | {r} |" not in text] == []
    assert set(REASON_TEXTS) == set(Reason)


def test_every_row_is_compared() -> None:
    """A new reason needs an example, and a test of it."""
    compared = {*CREATED, Reason.SHARES_SHORT, Reason.UNHEALTHY, Reason.EPHEMERAL}

    alone = {
        Reason.GROUP,
        Reason.SHARE_CLASS,
        Reason.ISOLATION,
        Reason.UNSERVED,
        Reason.INCOMPLETE,
        Reason.UNREADABLE,
    }
    assert set(ROWS) == compared | alone
