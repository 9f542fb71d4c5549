"""The bind tells a program of gpushare which GPU it got, and how much memory that GPU has."""

import pytest

from allocator.config.settings import NodeAgent
from allocator.model.gpu import Node
from tests.builders.containers import GPU_COUNT
from tests.builders.model import A100_40, T4, gpu, node
from tests.builders.pods import GPU_MEM, MODE, container, pod
from tests.unit.webhook.binding.test_decide import OWN, SOFT, TWO, result

UNEQUAL = node("n0", gpu(T4, index=3), gpu(A100_40, index=5))


@pytest.mark.parametrize(
    ("annotations", "at", "index", "units"),
    [
        pytest.param({}, SOFT, "0", "39", id="memory-only"),
        pytest.param({}, UNEQUAL, "3", "15", id="the-gpu-that-it-got"),
        pytest.param({f"{OWN}isolate": "true"}, UNEQUAL, "3", "15", id="isolated"),
        pytest.param({MODE: "hami-core"}, SOFT, "0", "39", id="named"),
    ],
)
def test_a_share_is_told_its_gpu(
    annotations: dict[str, str], at: Node, *, index: str, units: str
) -> None:
    """In GiB, as the share is counted: 40536 MiB are 39 whole units, the 15360 of a T4 are 15."""
    written = pod(container("web"), container(limits={GPU_MEM: 2}), annotations=annotations)

    found = result(written, at)["metadata"]["annotations"]

    assert (found[f"{OWN}c1.gpu-index"], found[f"{OWN}c1.gpu-units"]) == (index, units)


def test_nobody_else_is_told() -> None:
    """No variable of a whole GPU or of a Volcano pod reads it, nor of a pod of another plugin."""
    whole = result(pod(container(limits={GPU_COUNT: 1})), SOFT)
    volcano = result(pod(TWO), SOFT)
    upstream = result(pod(container(limits={GPU_MEM: 2})), SOFT, agent=NodeAgent.UPSTREAM)

    for found in (whole, volcano, upstream):
        assert not [key for key in found["metadata"]["annotations"] if ".gpu-" in key]
