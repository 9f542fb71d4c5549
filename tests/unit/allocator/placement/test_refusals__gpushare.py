"""A gpushare pod that no GPU can serve in its mode is told what its user can write."""

import pytest

from allocator.model.decision import Findings, Reason
from allocator.placement.mode import mode_for
from tests.builders.containers import GPU_MEM, MEMORY, NUMBER, box, request
from tests.builders.model import A100_40, T4, fleet
from tests.unit.allocator.placement.test_refusals import CLOSED, MIG, SOFT

MODE = "vgpu-admission.io/mode"
VOLCANOS = "volcano.sh/vgpu-mode"
ISOLATE = "vgpu-admission.io/isolate"


@pytest.mark.parametrize(
    ("annotations", "mode"),
    [
        pytest.param({}, "memory-only", id="unnamed"),
        pytest.param({ISOLATE: "true"}, "hami-core", id="isolated"),
        pytest.param({VOLCANOS: "hami-core"}, "hami-core", id="by-volcanos-key"),
        pytest.param({MODE: "hami-core"}, "hami-core", id="by-ours"),
    ],
)
def test_where_all_gpus_are_cut_other_resources_are_advised(
    annotations: dict[str, str], mode: str
) -> None:
    """No annotation helps: MIG GPUs do not offer gpushare's resources, so none is advised."""
    asked = request(box({GPU_MEM: "4"}), annotations=annotations)
    fleet_here = fleet((A100_40, MIG))

    found = mode_for(asked, fleet_here, settings=CLOSED, complete=True)
    instead = request(box({NUMBER: "1", MEMORY: "4096"}))

    assert isinstance(found, Findings)
    assert str(found.first) == (
        f'pod: mode "{mode}" is not available here; ask for volcano.sh/vgpu-number and its memory '
        "in MiB instead of aliyun.com/gpu-mem"
    )
    assert found.first.reason is Reason.MODE_UNAVAILABLE
    assert not isinstance(mode_for(instead, fleet_here, settings=CLOSED, complete=True), Findings)


def test_a_mode_is_not_given_up_where_that_does_not_help() -> None:
    """Without its annotation the pod would be memory-only, which a MIG GPU cannot serve."""
    asked = request(box({GPU_MEM: "24"}), annotations={MODE: "hami-core"})

    found = mode_for(asked, fleet((T4, SOFT), (A100_40, MIG)), settings=CLOSED, complete=True)

    assert isinstance(found, Findings)
    assert found.first.remedy == "ask for at most 15"
