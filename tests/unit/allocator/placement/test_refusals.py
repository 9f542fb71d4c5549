"""What a closed fleet refuses at CREATE, in words a user can act on."""

from collections.abc import Mapping

import msgspec
import pytest

from allocator.config.settings import DEFAULTS, FleetScope
from allocator.model.decision import Finding, Findings, Reason
from allocator.model.gpu import GpuKind
from allocator.model.request import Filters, Mode, PodRequest
from allocator.placement.mode import mode_for
from tests.builders.model import A30, A100_40, A100_80, T4, ask, fleet, pod

CLOSED = msgspec.structs.replace(DEFAULTS, fleet=FleetScope.CLOSED)
MIG, SOFT = Mode.MIG, Mode.HAMI_CORE
BOTH = fleet((A100_40, MIG), (A100_40, SOFT))


def refused(request: PodRequest, offers: Mapping[GpuKind, int] = BOTH) -> Finding:
    found = mode_for(request, offers, settings=CLOSED, complete=True)
    assert isinstance(found, Findings)
    return found.first


@pytest.mark.parametrize(
    ("request_", "offers", "reason", "text"),
    [
        pytest.param(
            pod(ask(90000)),
            fleet((A100_40, SOFT), (T4, SOFT)),
            Reason.MEMORY_SHORT,
            'container "main": asks for 90000 MiB on one GPU; the largest has 40536; '
            "ask for at most 40536, or use vgpu-number 3 with 30000 each",
            id="memory",
        ),
        pytest.param(
            pod(ask(24400), mode=MIG),
            fleet((A30, MIG), (A100_80, SOFT)),
            Reason.NO_GEOMETRY,
            'container "main": no MIG profile here has 24400 MiB (largest: 4g.24gb on A30 with '
            "23344 MiB usable); ask for at most 23344 or remove volcano.sh/vgpu-mode",
            id="geometry",
        ),
        pytest.param(
            pod(ask(1000), filters=Filters(models=("H100",))),
            fleet((A100_40, SOFT), (T4, SOFT)),
            Reason.MODEL_UNAVAILABLE,
            'pod: nvidia.com/use-gputype "H100" matches none of A100-SXM4-40GB, Tesla T4; '
            "name one of these, or remove it",
            id="model",
        ),
        pytest.param(
            pod(ask(1000), filters=Filters(not_models=("A100",))),
            fleet((A100_40, SOFT)),
            Reason.MODEL_UNAVAILABLE,
            'pod: nvidia.com/nouse-gputype "A100" excludes all of A100-SXM4-40GB; '
            "name one of these, or remove it",
            id="model-denied",
        ),
        pytest.param(
            pod(ask(1000, count=16)),
            fleet((A100_40, SOFT), (T4, SOFT)),
            Reason.TOO_MANY,
            'container "main": asks for 16 GPUs; no node has more than 8 that qualify; '
            "ask for at most 8 per pod",
            id="devices",
        ),
        pytest.param(
            pod(ask(1000, cores=140)),
            fleet((A100_40, SOFT)),
            Reason.CORES_SHORT,
            'container "main": vgpu-cores 140 is more than one whole GPU; ask for at most 100',
            id="cores",
        ),
        pytest.param(
            pod(ask(1000, cores=50), profile="1g.5gb"),
            fleet((A100_40, MIG)),
            Reason.CORES_SHORT,
            'container "main": vgpu-cores 50 is more than the share of 1g.5gb on A100-SXM4-40GB; '
            "ask for at most 14",
            id="cores-of-a-profile",
        ),
        pytest.param(
            pod(ask(1000), mode=MIG),
            fleet((T4, SOFT)),
            Reason.MODE_UNAVAILABLE,
            'pod: mode "mig" is not available here; use hami-core, or remove volcano.sh/vgpu-mode',
            id="mode",
        ),
        pytest.param(
            msgspec.structs.replace(pod(ask(), mode=SOFT), library_off=True),
            fleet((A100_40, MIG)),
            Reason.MODE_UNAVAILABLE,
            'pod: mode "hami-core" is not available here; remove vgpu-admission.io/library',
            id="mode-without-the-library",
        ),
        pytest.param(
            pod(ask(), profile="9g.99gb"),
            fleet((A30, MIG)),
            Reason.NO_GEOMETRY,
            'container "main": no GPU here has the MIG profile "9g.99gb"; '
            "use one of 1g.6gb, 2g.12gb, 4g.24gb or remove vgpu-admission.io/mig-profile",
            id="profile",
        ),
        pytest.param(
            pod(ask(count=8), ask(30000, name="second")),
            fleet((A100_40, SOFT)),
            Reason.TOO_MANY,
            "pod: its containers together ask for more than the largest node has; "
            "ask for less per container, or split the pod",
            id="together",
        ),
    ],
)
def test_what_a_closed_fleet_refuses(
    request_: PodRequest, offers: Mapping[GpuKind, int], *, reason: Reason, text: str
) -> None:
    """A refusal sets the user's number against ours and says what could be asked instead."""
    found = refused(request_, offers)

    assert found.reason is reason
    assert str(found) == text


def test_a_refusal_never_advises_in_vain() -> None:
    """To drop the mode is no advice where no other mode would serve."""
    found = refused(pod(ask(24400), mode=MIG), fleet((A30, MIG)))

    assert found.remedy == "ask for at most 23344"


def test_everything_wrong_with_a_container_is_said_at_once() -> None:
    """Who mends one number need not come back for the other."""
    found = mode_for(pod(ask(90000, count=9)), BOTH, settings=CLOSED, complete=True)

    assert isinstance(found, Findings)
    assert [finding.reason for finding in found.all] == [Reason.MEMORY_SHORT, Reason.TOO_MANY]
