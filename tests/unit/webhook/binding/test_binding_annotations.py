"""What the bind tells containers: of gpushare their GPU, of MPS their memory."""

import pytest

from allocator.catalog.injection import PRELOAD_LIBRARY, PRELOAD_NOTHING
from allocator.config.settings import NodeAgent
from allocator.model.gpu import Node
from allocator.model.request import Mode
from tests.builders.containers import GPU_COUNT
from tests.builders.model import A100_40, T4, gpu, node
from tests.builders.pods import CORES, GPU_MEM, MEMORY, MODE, NUMBER, container, pod
from tests.unit.webhook.binding.test_decide import CUT, OWN, SOFT, TWO, result

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


MPS_NODE = node("n0", gpu(T4, mode=Mode.MPS), gpu(T4, index=1, mode=Mode.MPS))


def test_a_client_of_mps_is_told_its_memory() -> None:
    """In the words of ``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``, for the one GPU that it sees as 0."""
    asking = container(limits={NUMBER: 1, MEMORY: 3000, CORES: 30})
    other = container("other", limits={NUMBER: 1, MEMORY: 4000})

    found = result(pod(asking, other, annotations={MODE: "mps"}), MPS_NODE)

    told = found["metadata"]["annotations"]
    assert told[f"{OWN}c0.mps-memory"] == "0=3000M"
    assert told[f"{OWN}c1.mps-memory"] == "0=4000M"
    assert (told[f"{OWN}c0.cores"], told[f"{OWN}c1.cores"]) == ("30", "0")
    assert told[f"{OWN}c0.visible"].startswith("GPU-n0-")
    assert told[f"{OWN}c0.preload"] == told[f"{OWN}c1.preload"] == PRELOAD_NOTHING


@pytest.mark.parametrize("at", [SOFT, CUT])
def test_no_other_mode_is_told_of_mps(at: Node) -> None:
    """Nor is a pod of another plugin's node."""
    written = pod(container(limits={NUMBER: 1, MEMORY: 3000}))

    for agent in (NodeAgent.OURS, NodeAgent.UPSTREAM):
        told = result(written, at, agent=agent)["metadata"]["annotations"]
        assert not [key for key in told if "mps" in key]
    upstream = result(
        pod(container(limits={NUMBER: 1, MEMORY: 3000}), annotations={MODE: "mps"}),
        MPS_NODE,
        agent=NodeAgent.UPSTREAM,
    )
    assert not [key for key in upstream["metadata"]["annotations"] if "mps-memory" in key]


def test_an_instance_is_told_of_later() -> None:
    """It has no UUID before the agent made it; the library goes with shares in software only."""
    cut = result(pod(container(limits={NUMBER: 1, MEMORY: 3000})), CUT)["metadata"]["annotations"]
    soft = result(pod(container(limits={NUMBER: 1, MEMORY: 3000})), SOFT)["metadata"]["annotations"]

    assert f"{OWN}c0.visible" not in cut
    assert cut[f"{OWN}c0.preload"] == PRELOAD_NOTHING
    assert soft[f"{OWN}c0.visible"].startswith("GPU-")
    assert soft[f"{OWN}c0.preload"] == PRELOAD_LIBRARY
