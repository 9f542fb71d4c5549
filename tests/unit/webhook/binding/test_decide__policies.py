"""Policies at the one door: what the operator set decides which GPU a bind commits."""

from datetime import UTC, datetime

import pytest

from allocator.config.settings import Settings
from allocator.model.request import FillPolicy, Mode
from tests.builders.bindings import binding, bound, live
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import gpu, node, snapshot, soft_grant
from tests.builders.pods import MEMORY, MODE, NUMBER, admitted, container, pod, received
from webhook.admission.context import AdmissionContext
from webhook.binding.batch import decide_batch
from webhook.binding.binding_annotations import Commit
from webhook.binding.decide import BindRequest, judge

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ASKING = pod(container(limits={NUMBER: 1, MEMORY: 3000}), annotations={MODE: str(Mode.HAMI_CORE)})


@pytest.mark.parametrize(
    ("packing", "expected"), [(FillPolicy.BINPACK, "GPU-n0-1"), (FillPolicy.SPREAD, "GPU-n0-0")]
)
def test_a_bind_follows_the_gpu_policy(packing: FillPolicy, expected: str) -> None:
    """The GPU that is busy, or the one that is idle, as the settings have it."""
    busy = soft_grant(20000, gpu="GPU-n0-1")
    there = node("n0", gpu(index=0), gpu(index=1))
    around = AdmissionContext(settings=Settings(gpu_policy=packing), snapshot=snapshot(there))
    wish = judge(bound(binding()), live(admitted(received(ASKING), around)), around)
    assert isinstance(wish, BindRequest), wish

    (found,) = decide_batch(ledger(there, [entry("other", busy)]), [(wish, around)], NOON)

    assert isinstance(found, Commit), found
    assert [g.gpu for held in found.assignment.containers for g in held.grants] == [expected]
