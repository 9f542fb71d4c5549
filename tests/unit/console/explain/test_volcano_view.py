"""Why a pod of Volcano's scheduler waits beside GPUs that would take it."""

import pytest
from msgspec.structs import replace

from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.terminal_lines import plain_text, printed_lines
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView, cluster_view
from console.explain.why import PodFacts, PodWhy, why
from console.explain.why_text import lines
from tests.builders.gpunodes import gpu_node
from tests.builders.model import A100_40, gpu, node
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.unit.console.sites import NOW, machine, stored

UNSEEN = "volcano sees one mode per node, and here only GPUs in mode {} [ModeUnavailable]"


def boards(hard: int, soft: int) -> Node:
    """Return a node with so many GPUs in mode mig, then so many in mode hami-core."""
    modes = (*(Mode.MIG,) * hard, *(Mode.HAMI_CORE,) * soft)
    return node("mix", *(gpu(A100_40, index=at, mode=mode) for at, mode in enumerate(modes)))


def cluster(there: Node, *, registered: bool = True) -> ClusterView:
    register = "any" if registered else ""
    return cluster_view([gpu_node(there)], [machine("mix", register=register)], now=NOW)


def waiting(mode: str, scheduler: str = "volcano") -> PodView:
    limits: dict[str, object] = {NUMBER: 1, MEMORY: 3000}
    found = stored("p", pod(container(limits=limits), annotations={MODE: mode}))
    return replace(found, spec=replace(found.spec, scheduler_name=scheduler))


def explained(found: PodView, site: ClusterView) -> PodWhy:
    return why(PodFacts(pod=found, site=site))


@pytest.mark.parametrize(
    ("there", "mode", "seen"),
    [
        pytest.param(boards(1, 2), "mig", "hami-core", id="few-are-cut"),
        pytest.param(boards(2, 2), "mig", "hami-core", id="as-many"),
        pytest.param(boards(2, 1), "hami-core", "mig", id="most-are-cut"),
    ],
)
def test_gpus_in_the_rarer_mode_are_not_seen(there: Node, mode: str, seen: str) -> None:
    """The node has room, but no scheduler would propose it."""
    answer = explained(waiting(mode), cluster(there))

    shown = " ".join(" ".join(map(plain_text, printed_lines(lines(answer)))).split())
    assert answer.outlook is not None
    assert answer.outlook.verdict is not FeasibilityVerdict.FITS
    assert f"mix: {UNSEEN.format(seen)}" in shown


@pytest.mark.parametrize(
    ("found", "there", "registered"),
    [
        pytest.param(waiting("mig"), boards(2, 1), True, id="the-common-mode"),
        pytest.param(waiting("hami-core"), boards(1, 1), True, id="the-mode-of-a-tie"),
        pytest.param(waiting("mig", "default-scheduler"), boards(1, 2), True, id="another"),
        pytest.param(waiting("mig"), boards(1, 2), False, id="not-registered"),
    ],
)
def test_other_gpus_are_seen(found: PodView, there: Node, *, registered: bool) -> None:
    """Its scheduler may propose the node."""
    answer = explained(found, cluster(there, registered=registered))

    assert answer.outlook is not None
    assert answer.outlook.verdict is FeasibilityVerdict.FITS


def test_a_gpu_that_would_not_take_the_pod_is_no_reason() -> None:
    """The node lacks memory in either mode, and that is what is said."""
    limits: dict[str, object] = {NUMBER: 1, MEMORY: 40500}
    found = stored("p", pod(container(limits=limits), annotations={MODE: "mig"}))
    found = replace(found, spec=replace(found.spec, scheduler_name="volcano"))

    (answer,) = explained(found, cluster(boards(1, 2))).answers

    assert answer.finding is not None
    assert "sees one mode" not in answer.finding.what
