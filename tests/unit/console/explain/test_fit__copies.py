"""What fits in a cluster counts every pod that a workload runs at the same time."""

import pytest
import yaml

from allocator.config.manifest import pods_in
from allocator.config.namespace_policy import ANY_MODE
from allocator.model.problem import Loaded
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from allocator.report.together import PodOfFile
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView, cluster_view
from console.explain.fit import Fit, fit_all, fit_document, lines
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, nodes_of, soft_grant
from tests.builders.pods import MEMORY, Json, container
from tests.unit.console.sites import NOW, machine

FITS, LATER = FeasibilityVerdict.FITS, FeasibilityVerdict.NOT_NOW
NEVER = FeasibilityVerdict.NEVER


def cluster(*, cordoned: bool = False) -> ClusterView:
    """Return a cluster of three T4, one of them busy; *cordoned* closes the node with it."""
    held = (entry("busy", soft_grant(9000, gpu="GPU-a-0")),)
    gpu_nodes = [gpu_node(nodes_of(1, T4, name="a"), held), gpu_node(nodes_of(2, T4, name="b"))]
    machines = [machine("a", cordoned=cordoned), machine("b")]
    return cluster_view(gpu_nodes, machines, now=NOW)


def gang(*tasks: tuple[int, int], least: int | None = None) -> Json:
    written = [
        {
            "replicas": number,
            "template": {"spec": {"containers": [container(limits={MEMORY: memory})]}},
        }
        for memory, number in tasks
    ]
    spec: Json = {"tasks": written} | ({} if least is None else {"minAvailable": least})
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return {**kind, "metadata": {"name": "j"}, "spec": spec}


def fitted(written: Json, found: ClusterView) -> list[tuple[str, Fit]]:
    made = pods_in(yaml.safe_dump(written), PodView, namespace="team-a")
    assert isinstance(made, Loaded)
    pods = [PodOfFile(file="j.yaml", number=0, made=one) for one in made.value]
    return fit_all(pods, found, policies={"team-a": ANY_MODE})


@pytest.mark.parametrize(
    ("written", "verdicts"),
    [
        pytest.param(gang((8000, 2)), [FITS], id="all"),
        pytest.param(gang((8000, 3)), [LATER], id="one-has-to-wait"),
        pytest.param(gang((8000, 4)), [NEVER], id="more-than-gpus"),
        pytest.param(gang((8000, 4), least=2), [FITS], id="enough-of-them"),
        pytest.param(gang((15000, 1), (8000, 1)), [FITS, FITS], id="two-tasks"),
        pytest.param(gang((15000, 2), (8000, 1)), [FITS, LATER], id="no-room-for-the-second"),
    ],
)
def test_pods_of_one_object_share_the_cluster(
    written: Json, verdicts: list[FeasibilityVerdict]
) -> None:
    """On what is free now, and on what there is at all."""
    assert [answer.verdict for _, answer in fitted(written, cluster())] == verdicts


def test_a_node_that_is_closed_takes_none() -> None:
    """It opens again, so that more than fit now is not more than ever fits."""
    (answer,) = fitted(gang((8000, 3)), cluster(cordoned=True))

    assert answer[1].verdict is LATER


def test_the_number_is_told() -> None:
    """In words and in the document."""
    (answer,) = fitted(gang((8000, 3)), cluster())

    shown = [plain_text(line) for line in printed_lines(lines(answer[1], answer[0]), WIDTH)]
    assert max(map(len, shown)) <= WIDTH
    assert "pods      2 of 3 pods fit at the same time: 2 on b" in shown
    assert "try       ask for at most 2 at the same time; so many fit now" in shown
    found = fit_document([answer])
    assert (found["exitCode"], found["pods"][0]["copies"]["fitting"]) == (4, 2)
