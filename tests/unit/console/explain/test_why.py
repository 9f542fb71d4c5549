"""Why: what a pod asked for, what was decided, where it is, or what it would take."""

import json
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import Prefer
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Entry
from allocator.model.request import Mode
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from console.cluster.event import EventView, events_of
from console.cluster.pod import PodState, PodView
from console.cluster.snapshot import ClusterView
from console.explain.why import MOST_FREEING_PODS, MOST_NODES, PodFacts, PodWhy, why
from console.explain.why_json import why_document
from console.explain.why_text import lines
from console.get.listing import OutputFormat, document
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, gpu, node, soft_grant
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, Json, container, pod
from tests.unit.console.sites import machine, plain, site, soft, stored

Golden = Callable[[str, str], str]
OPTED_IN = {"vgpu-admission.io/inject": "enabled"}
SAID = events_of(
    [
        {"type": "Normal", "reason": "Old", "message": "a", "lastTimestamp": None},
        {
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "0/3 nodes are available: 1 insufficient GPU memory, "
            "2 no matching MIG profile.",
            "source": {"component": "default-scheduler"},
            "count": 4,
            "lastTimestamp": "2026-11-21T12:30:00Z",
        },
        {
            "type": "Normal",
            "reason": "VgpuWaiting",
            "message": "waits",
            "reportingComponent": "vgpu-admission.io/allocator",
            "eventTime": "2026-11-21T12:20:00.000000Z",
            "series": {"count": 9, "lastObservedTime": "2026-11-21T12:34:00.000000Z"},
        },
    ]
)


def asking(memory: int, cores: int = 0, mode: str = "") -> Json:
    limits = {NUMBER: 1, MEMORY: memory} | ({CORES: cores} if cores else {})
    return pod(container(limits=limits), annotations={MODE: mode} if mode else None)


def told(found: PodView, **more: object) -> PodWhy:
    facts = PodFacts(pod=found, site=site(), events=SAID, labels=OPTED_IN)
    return why(replace(facts, **more))  # type: ignore[arg-type]  # fields of Facts


def test_the_demand_of_a_namespace_is_said_first() -> None:
    """Every bind is refused, so room on a node is no news."""
    demand = NamespacePolicy(min_isolation="mig")
    named = told(stored("big-0", asking(3000, mode="hami-core")), namespace=demand)
    cheap = NamespacePolicy(prefer=Prefer.DENSITY, min_isolation="mig")
    unnamed = told(stored("big-0", asking(1000)), namespace=cheap)

    shown = text(named).splitlines()
    assert shown[0].startswith("WAITING   mode hami-core isolates less than mig")
    assert any(line.startswith(f"try       remove {MODE}") for line in shown[:4])
    assert named.outlook is not None
    assert named.outlook.verdict is FeasibilityVerdict.REFUSED
    assert unnamed.outlook is not None
    assert {device.node for device in unnamed.outlook.devices} == {"gpu-a"}


def test_a_demand_is_met_by_mps_as_by_hami_core() -> None:
    """The pod is told why it waits under a stronger demand only."""
    found = stored("big-0", asking(3000, mode="mps"))

    strong = text(told(found, namespace=NamespacePolicy(min_isolation="mig")))
    weak = text(told(found, namespace=NamespacePolicy(min_isolation="hami-core")))

    assert strong.startswith("WAITING   mode mps isolates less than mig")
    assert f"try       remove {MODE}" in strong
    assert "isolates less" not in weak


def text(found: PodWhy) -> str:
    shown = list(map(plain_text, printed_lines(lines(found))))
    assert max(map(len, shown)) <= WIDTH
    return "".join(f"{line}\n" for line in shown)


GATED = msgspec.structs.replace(
    stored("gated-0", asking(3000)),
    spec=msgspec.structs.replace(
        stored("gated-0", asking(3000)).spec, scheduling_gates=({"name": "team/quota"},)
    ),
)
PODS = {
    "running": stored("train-0", asking(18000, 40), node="gpu-a", phase="Running", minutes=40),
    "reserved": stored("tune-0", asking(3000)),
    "waiting": stored("big-0", asking(9000, 30, mode="hami-core")),
    "never": stored("huge-0", asking(90000)),
    "free": stored("next-0", asking(3000)),
    "bypassed": stored("late-0", asking(3000, mode="hami-core"), node="gpu-b"),
    "gated": GATED,
    "unseen": plain("web-0"),
    "nothing": stored("idle-0", pod(container()), node="gpu-a", phase="Running"),
}


@pytest.mark.parametrize("name", PODS)
def test_pods_are_explained_as_reviewed(name: str, golden: Golden) -> None:
    """The texts stand in tests/golden; --update-golden writes them anew."""
    known = {"site": site([gpu_node(soft())], [machine("gpu-b")])} if name == "never" else {}
    shown = text(told(PODS[name], **known))

    assert shown == golden(f"kubectl-why-{name}.txt", shown)


@pytest.mark.parametrize("name", ["running", "waiting"])
def test_documents_are_what_docs_promise(name: str, golden: Golden) -> None:
    """Keys are public: they are only ever added."""
    shown = document(why_document(told(PODS[name])), OutputFormat.JSON)

    assert f"{shown}\n" == golden(f"kubectl-why-{name}.json", f"{shown}\n")
    assert json.loads(shown)["kind"] == "Why"


def test_what_a_pod_reserved_itself_counts_as_free() -> None:
    """Its Binding would get the same place again, so it does not stand in its own way."""
    own = entry("big-0", soft_grant(15000, gpu="GPU-n0-0"))
    found = site([gpu_node(node("n0", gpu(T4)), [own])], [machine("n0")])

    explained = told(stored("big-0", asking(15000, mode="hami-core")), site=found)

    assert explained.state is PodState.RESERVED
    assert explained.outlook is not None
    assert explained.outlook.verdict is FeasibilityVerdict.FITS


def test_an_ending_is_named_only_if_it_is_enough() -> None:
    """Each pod is imagined away by itself; one on a node out of service frees nothing."""
    full = gpu_node(soft(), [entry("whole", soft_grant(15000, gpu="GPU-gpu-b-0"))])
    wanted = stored("big-0", asking(14000, mode="hami-core"))

    helped = told(wanted, site=site([full], [machine("gpu-b")]))
    out = told(wanted, site=site([full], [machine("gpu-b", cordoned=True)]))

    assert [(one.pod, one.node) for one in helped.freeing_pods] == [("whole", "gpu-b")]
    assert out.freeing_pods == ()
    assert [answer.closed_reason for answer in out.answers] == ["it is cordoned"]


def used(*entries: Entry) -> ClusterView:
    """Return a node with two GPUs on which pods run without an entry."""
    return site([gpu_node(soft(), unpromised=spec_of(entries)["entries"])], [machine("gpu-b")])


def test_who_came_past_admission_is_named_to_who_waits_for_the_node() -> None:
    """A pod without an entry is somebody's mistake, and can be deleted."""
    stranger = entry("stranger", soft_grant(15000, gpu="GPU-gpu-b-0"))
    instance = replace(entry("MIG-1", soft_grant(1, gpu="GPU-gpu-b-0")), namespace="foreign")
    wanted = stored("big-0", asking(15000, mode="hami-core"))

    waits = told(wanted, site=used(stranger, instance))
    fits = told(stored("big-0", asking(100, mode="hami-core")), site=used(stranger))

    line = "no entry  team-a/stranger uses GPUs of gpu-b, and what it asks for is kept for it"
    assert line in " ".join(text(waits).split()).replace("no entry ", "no entry  ")
    assert why_document(waits)["nodes"][0]["strangers"] == [
        {"namespace": "team-a", "pod": "stranger"}
    ]
    assert [(one.pod, one.node) for one in waits.freeing_pods] == [("stranger", "gpu-b")]
    assert "no entry" not in text(fits)


def test_many_that_came_past_admission_are_counted() -> None:
    """A table of hundreds would hide what helps."""
    many = [entry(f"s{n}", soft_grant(1000, gpu="GPU-gpu-b-0")) for n in range(9)]

    shown = text(told(stored("big-0", asking(16000, mode="hami-core")), site=used(*many)))

    assert shown.count("uses GPUs of gpu-b") == MOST_FREEING_PODS
    assert "and 4 more pods" in shown


def test_a_node_whose_agent_is_gone_has_no_room() -> None:
    """Kubelet says so of a node whose ledger is still open; its GPUs do not fit anybody."""
    wanted = stored("big-0", asking(3000, mode="hami-core"))

    gone = told(wanted, site=site([gpu_node(soft())], [machine("gpu-b", slots="0")]))

    assert gone.outlook is not None
    assert gone.outlook.verdict is FeasibilityVerdict.NOT_NOW
    (answer,) = gone.answers
    assert answer.closed_reason.startswith("kubelet has no volcano.sh/vgpu-number to give")


def test_a_large_cluster_is_told_in_few_lines() -> None:
    """The closest nodes come first; the others are counted."""
    nodes = [node(f"n{i:03}", gpu(T4, grants=[soft_grant(9000 + i)])) for i in range(60)]
    entries = [[entry(f"p{i}", soft_grant(9000 + i, gpu=f"GPU-n{i:03}-0"))] for i in range(60)]
    found = site(map(gpu_node, nodes, entries), [machine(one.name) for one in nodes])

    explained = told(stored("big-0", asking(9000, mode="hami-core")), site=found)

    assert [answer.node for answer in explained.answers] == [f"n{i:03}" for i in range(MOST_NODES)]
    assert explained.node_count == 60
    assert len(explained.freeing_pods) == MOST_FREEING_PODS
    assert "and 48 more nodes" in text(explained)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, "has no label vgpu-admission.io/inject=enabled", id="not-opted-in"),
        pytest.param(OPTED_IN, "the webhook was not called", id="opted-in"),
        pytest.param(None, "the webhook was not called", id="unknown"),
    ],
)
def test_a_pod_that_admission_never_saw_is_told_so(
    labels: dict[str, str] | None, expected: str
) -> None:
    """The usual cause is a namespace that did not opt in."""
    found = told(plain("p"), labels=labels)

    assert expected in text(found)


def test_no_mode_is_forced_that_only_admission_chose() -> None:
    """The Binding may revise the best mode, so both are looked for; a named one is kept to."""
    best = told(stored("a", asking(9000)))
    named = told(stored("b", asking(9000, mode="hami-core")))

    assert best.request is not None
    assert best.request.mode is None
    assert best.outlook is not None
    assert named.outlook is not None
    assert {one.mode for one in best.outlook.choice.candidates} == {Mode.MIG, Mode.HAMI_CORE}
    assert named.outlook.verdict is FeasibilityVerdict.NOT_NOW


def test_events_come_latest_first() -> None:
    """Whichever of its three times an Event has; one without any comes last."""
    assert [event.reason for event in SAID] == ["VgpuWaiting", "FailedScheduling", "Old"]
    assert [event.times for event in SAID] == [9, 4, 1]
    assert SAID[2] == EventView(type="Normal", reason="Old", message="a")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("node_name", ["", "gpu-a"])
def test_a_pod_that_is_over_hears_nothing_of_room(phase: str, node_name: str) -> None:
    """It will never be scheduled again, so where it would fit is of no use."""
    explained = told(stored("done-0", asking(3000), node=node_name, phase=phase))

    assert explained.outlook is None
    assert explained.answers == ()
    assert explained.freeing_pods == ()
    assert "fits" not in text(explained)
