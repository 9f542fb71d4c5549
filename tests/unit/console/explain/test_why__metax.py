"""Why and fit speak of MetaX's GPUs in MetaX's names, in GiB, and of MetaX's plugin."""

from dataclasses import replace
from typing import Final

import msgspec

from allocator.config.settings import DEFAULTS
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Entry, Grant
from allocator.model.gpu import Node
from allocator.model.request import METAX, Mode
from allocator.model.units import CorePercent, MiB
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.terminal_lines import plain_text, printed_lines
from console.cluster.pod import PodView, pod_of
from console.cluster.snapshot import ClusterView, cluster_view
from console.explain.why import PodFacts, PodWhy, why
from console.explain.why_text import lines
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import Json, admitted, container, pod, received
from tests.unit.console.sites import NOW, machine
from webhook.admission.context import AdmissionContext

_CARD: Final = replace(
    nodes_of(1).gpus[0], mode=Mode.SGPU, family=METAX, model="C500", memory=MiB(65536), slots=16
)
SHARED: Final = Node(
    name="metax-1",
    gpus=tuple(replace(_CARD, uuid=f"GPU-{n}", index=i) for i, n in enumerate("ab")),
)


def view(*entries: Entry) -> ClusterView:
    """Return a cluster of one MetaX node."""
    document = gpu_node(SHARED) | {"spec": spec_of(entries)}
    return cluster_view([document], [machine("metax-1")], now=NOW)


def stored(name: str, memory: int, **spec: object) -> PodView:
    """Return a pod as the API server has it."""
    limits = {
        "metax-tech.com/sgpu": 1,
        "metax-tech.com/vcore": 50,
        "metax-tech.com/vmemory": memory,
    }
    around = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(SHARED))
    written: Json = admitted(received(pod(container(limits=limits))), around)
    written["metadata"] |= {"name": name, "uid": name}
    written["metadata"]["annotations"]["vgpu-admission.io/served-by"] = "upstream"
    return pod_of(written | {"spec": written["spec"] | spec})


def text(found: PodWhy) -> str:
    return "\n".join(map(plain_text, printed_lines(lines(found))))


def test_a_bound_pod_is_said_to_be_served_by_metaxs_plugin() -> None:
    """With what it holds."""
    grant = Grant(gpu="GPU-a", mode=Mode.SGPU, memory=MiB(4096), cores=CorePercent(50))
    site = view(entry("train-0", grant))

    shown = text(why(PodFacts(pod=stored("train-0", 4, nodeName="metax-1"), site=site)))

    assert "served by MetaX's device plugin" in shown
    assert "4 GiB" in shown
    assert "Volcano" not in shown


def test_a_waiting_pod_reads_what_would_help() -> None:
    """By the name of the resource that it wrote."""
    full = Grant(gpu="GPU-a", mode=Mode.SGPU, memory=MiB(61440), cores=CorePercent(10))
    site = view(entry("one", full), entry("two", msgspec.structs.replace(full, gpu="GPU-b")))

    found = why(PodFacts(pod=stored("late-0", 32), site=site))

    assert found.outlook is not None
    assert found.outlook.verdict is FeasibilityVerdict.NOT_NOW
    shown = text(found)
    assert "32 GiB" in shown
    assert "MiB" not in shown
