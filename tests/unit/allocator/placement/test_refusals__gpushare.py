"""A gpushare pod that no GPU can serve in its mode is told what its user can write."""

import pytest

from allocator.model.decision import Findings, Reason
from allocator.model.request import Mode
from allocator.placement.mode import mode_for
from tests.builders.containers import GPU_MEM, box, request
from tests.builders.model import A30, A100_40, T4, fleet
from tests.unit.allocator.placement.test_refusals import CLOSED, MIG, SOFT

MODE = "vgpu-admission.io/mode"
VOLCANOS = "volcano.sh/vgpu-mode"
ISOLATE = "vgpu-admission.io/isolate"
PROFILE = "vgpu-admission.io/mig-profile"


@pytest.mark.parametrize(
    ("annotations", "hardware", "text"),
    [
        pytest.param(
            {},
            MIG,
            'mode "memory-only" is not available here; set vgpu-admission.io/mode to mig',
            id="unnamed",
        ),
        pytest.param(
            {ISOLATE: "true"},
            MIG,
            'mode "hami-core" is not available here; remove vgpu-admission.io/isolate and set '
            "vgpu-admission.io/mode to mig",
            id="isolated",
        ),
        pytest.param(
            {VOLCANOS: "hami-core"},
            MIG,
            'mode "hami-core" is not available here; use mig',
            id="without-it-no-better",
        ),
        pytest.param(
            {MODE: "mig"},
            SOFT,
            'mode "mig" is not available here; use hami-core, or remove vgpu-admission.io/mode',
            id="mig",
        ),
        pytest.param(
            {VOLCANOS: "mig", PROFILE: "1g.5gb"},
            SOFT,
            'mode "mig" is not available here; remove vgpu-admission.io/mig-profile and set '
            "volcano.sh/vgpu-mode to hami-core",
            id="profile",
        ),
    ],
)
def test_the_sentence_offers_what_can_be_written(
    annotations: dict[str, str], hardware: Mode, text: str
) -> None:
    """Nobody can write "use mig" without an annotation's name where none is on the pod."""
    asked = request(box({GPU_MEM: "4"}), annotations=annotations)

    found = mode_for(asked, fleet((A100_40, hardware)), settings=CLOSED, complete=True)

    assert isinstance(found, Findings)
    assert str(found.first) == f"pod: {text}"
    assert found.first.reason is Reason.MODE_UNAVAILABLE


def test_a_mode_is_given_up_only_where_that_helps() -> None:
    """Without its annotation the pod would be memory-only, which a MIG GPU cannot serve."""
    asked = request(box({GPU_MEM: "24"}), annotations={MODE: "hami-core"})
    named = request(box({GPU_MEM: "24"}), annotations={MODE: "mig"})

    soft = mode_for(asked, fleet((T4, SOFT), (A100_40, MIG)), settings=CLOSED, complete=True)
    mig = mode_for(named, fleet((A30, MIG), (A100_40, SOFT)), settings=CLOSED, complete=True)

    assert isinstance(soft, Findings)
    assert isinstance(mig, Findings)
    assert soft.first.remedy == "ask for at most 15"
    assert mig.first.remedy == "ask for at most 22 or remove vgpu-admission.io/mode"
