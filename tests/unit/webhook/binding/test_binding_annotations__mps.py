"""The bind tells a client of MPS how much memory it may pin, and nobody else."""

import pytest

from allocator.model.request import Mode
from tests.builders.model import nodes_of
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, Json, container, pod
from tests.unit.webhook.binding.test_decide import OWN, result

SHARE = {NUMBER: 1, MEMORY: 3000, CORES: 30}


def annotations(written: Json, mode: Mode) -> dict[str, str]:
    """Return the annotations of a pod that is bound to a node whose GPUs are in *mode*."""
    found: dict[str, str] = result(written, nodes_of(2, mode=mode))["metadata"]["annotations"]
    return found


def test_each_client_is_told_its_own_memory() -> None:
    """Under the key of its container; one that asks for nothing is told nothing."""
    written = pod(
        container("web"),
        container("first", limits=SHARE),
        container("second", limits={**SHARE, MEMORY: 5000}),
        annotations={MODE: "mps"},
    )

    found = annotations(written, Mode.MPS)

    limits = {key: text for key, text in found.items() if key.endswith("mps-memory")}
    assert limits == {f"{OWN}c1.mps-memory": "0=3000M", f"{OWN}c2.mps-memory": "0=5000M"}
    assert found[f"{OWN}c1.memory-0"] == "3000m"


@pytest.mark.parametrize("mode", [Mode.HAMI_CORE, Mode.MIG])
def test_in_other_modes_nobody_is(mode: Mode) -> None:
    """Their limits are others."""
    written = pod(container(limits=SHARE), annotations={MODE: str(mode)})

    assert not [key for key in annotations(written, mode) if "mps" in key]
