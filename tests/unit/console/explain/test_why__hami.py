"""Why tells of a pod that HAMi's plugin serves whose agent limits it, and where that logs."""

from dataclasses import replace

import pytest

from allocator.ledger.schema import spec_of
from allocator.model.allocation import Entry, Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from allocator.report.terminal_lines import plain_text, printed_lines
from console.cluster.pod import PodView, pod_of
from console.cluster.snapshot import ClusterView, cluster_view
from console.explain.why import PodFacts, why
from console.explain.why_text import lines
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import nodes_of
from tests.builders.pods import MEMORY, NUMBER, container
from tests.unit.console.sites import NOW, machine

NODE = replace(nodes_of(1), name="gpu-a")
GRANT = Grant(gpu=NODE.gpus[0].uuid, mode=Mode.HAMI_CORE, memory=MiB(3000), cores=CorePercent(0))
ASSIGNED = (
    '[{"name":"main","devices":[{"gpu":"GPU-0","mode":"hami-core","memoryMiB":3000,"cores":0}]}]'
)
LIMITS = (
    "limits kept by HAMi's library and its monitor, not by an agent of ours; their logs are on "
    "gpu-a, in the pod of HAMi's device plugin: containers device-plugin and vgpu-monitor"
)


def view(*entries: Entry) -> ClusterView:
    document = gpu_node(NODE) | {"spec": spec_of(entries)}
    return cluster_view([document], [machine("gpu-a")], now=NOW)


def served(by: str, *, node: str = "gpu-a", phase: str = "Running") -> PodView:
    return pod_of(
        {
            "metadata": {
                "name": "p",
                "namespace": "team-a",
                "uid": "p",
                "annotations": {
                    "vgpu-admission.io/served-by": by,
                    "vgpu-admission.io/assignment": ASSIGNED,
                },
            },
            "spec": {"containers": [container(limits={NUMBER: 1, MEMORY: 3000})], "nodeName": node},
            "status": {"phase": phase},
        }
    )


def text(pod: PodView, site: ClusterView) -> str:
    found = printed_lines(lines(why(PodFacts(pod=pod, site=site))))
    return " ".join(" ".join(map(plain_text, found)).split())


@pytest.mark.parametrize("site", [view(entry("p", GRANT)), cluster_view(None, None, now=NOW)])
def test_the_pod_is_told_who_limits_it_and_where_the_log_is(site: ClusterView) -> None:
    """Also people who may not read ledgers are told."""
    shown = text(served("hami"), site)

    assert "served by HAMi's device plugin" in shown
    assert LIMITS in shown


@pytest.mark.parametrize(
    "by",
    [
        "vgpu-admission",
        "upstream",
        "",
        "HAMi",
        "hami ",
        "hami\n",
        "hami,upstream",
        "h\u0430mi",
        "\x1b[31mhami",
        "../hami",
        "hami" * 5000,
    ],
)
def test_nobody_else_is_told_so(by: str) -> None:
    """An annotation that says anything else says nothing of HAMi."""
    assert "HAMi" not in text(served(by), view(entry("p", GRANT)))


@pytest.mark.parametrize(("node", "phase"), [("gpu-a", "Succeeded"), ("", "Pending")])
def test_a_pod_that_runs_nowhere_is_limited_by_nobody(node: str, phase: str) -> None:
    """Its containers have ended, or none has started."""
    shown = text(served("hami", node=node, phase=phase), view(entry("p", GRANT)))

    assert "limits kept" not in shown
