"""What a pod says of itself: for people who may not read ledgers, and for others' accounts."""

import pytest

from allocator.report.terminal_lines import plain_text, printed_lines
from console.cluster.assignment import assigned_devices
from console.cluster.pod import PodState, PodView, pod_of
from console.cluster.snapshot import ClusterView, cluster_view
from console.explain.why import PodFacts, why
from console.explain.why_text import lines
from console.get.pod_rows import pod_listing, pod_rows
from tests.builders.pods import MEMORY, NUMBER, Json, container
from tests.unit.console.sites import NOW, site

HELD = (
    '[{"name":"main","devices":[{"gpu":"GPU-1","mode":"mig","memoryMiB":4864,"cores":0,'
    '"profile":"1g.5gb","start":6},{"gpu":"GPU-2","mode":"hami-core","memoryMiB":3000,"cores":20}]}]'
)
BLIND = cluster_view(None, None, now=NOW)


def bound(node: str = "gpu-a", **annotations: str) -> PodView:
    """Return a running pod with these annotations of ours."""
    found: Json = {
        "metadata": {
            "name": "p",
            "namespace": "team-a",
            "uid": "p",
            "annotations": {
                f"vgpu-admission.io/{k.replace('_', '-')}": v for k, v in annotations.items()
            },
        },
        "spec": {"containers": [container(limits={NUMBER: 2, MEMORY: 3000})], "nodeName": node},
        "status": {"phase": "Running" if node else "Pending"},
    }
    return pod_of(found)


def row(pod: PodView, where: ClusterView) -> list[str]:
    rows = pod_rows(where, [pod], gone=True, namespace="team-a")
    (cells,) = [
        cells
        for one, cells in zip(rows, pod_listing(rows, NOW, spaces=False).cells, strict=True)
        if one.name == "p"
    ]
    return list(cells[1:5])


def text(pod: PodView, where: ClusterView) -> str:
    found = why(PodFacts(pod=pod, site=where))
    return "".join(f"{plain_text(line)}\n" for line in printed_lines(lines(found)))


def test_without_ledgers_the_pod_speaks_for_itself() -> None:
    """Its assignment is the ledger's word at the time of its Binding."""
    pod = bound(assignment=HELD)

    assert row(pod, BLIND) == ["Running", "2x3000Mi", "1g.5gb+3000Mi/20%", "gpu-a"]
    assert "holds     main: mig, 1g.5gb at slot 6 (4864 MiB) on GPU-1\n" in text(pod, BLIND)


def test_with_ledgers_nobody_believes_it() -> None:
    """An annotation is a cache, never authority."""
    pod = bound(assignment=HELD)

    assert row(pod, site()) == ["Bypassed", "2x3000Mi", "<none>", "gpu-a"]
    assert "\nholds " not in text(pod, site())


def test_upstream_keeps_an_account_of_its_own() -> None:
    """A pod that its plugin serves has no entry of ours, and was not bypassed for that."""
    pod = bound(served_by="upstream")

    assert row(pod, site())[0] == str(PodState.RUNNING)
    assert "served by Volcano's device plugin" in " ".join(text(pod, site()).split())


def test_what_nodes_lack_is_not_guessed_without_ledgers() -> None:
    """A pod that waits is told who it waits for, and that nothing more may be told."""
    found = text(bound(node=""), BLIND)

    assert "nodes     unknown: you may not read GPUNodes\n" in found
    assert "missing" not in found


@pytest.mark.parametrize(
    "assignment",
    ["", "{", "{}", "[1]", '[{"name":"a"}]', "[" * 5000, '[{"name":"a","devices":[{"gpu":1}]}]'],
)
def test_an_assignment_that_cannot_be_read_is_none(assignment: str) -> None:
    """A tenant may have written anything there before admission guarded it."""
    assert assigned_devices(bound(assignment=assignment)) == ()
