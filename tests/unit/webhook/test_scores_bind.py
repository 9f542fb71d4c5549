"""Policies at the one door: what the operator set decides which GPU a bind commits."""

from datetime import UTC, datetime

import pytest

from allocator.core.settings import Settings
from allocator.model.request import FillPolicy, Mode
from tests.bindings import binding, bound, live
from tests.builders import gpu, node, snapshot, soft_grant
from tests.gpunodes import entry, ledger
from tests.pods import MEMORY, MODE, NUMBER, admitted, container, pod, received
from webhook.core.binding import BindRequest, judge
from webhook.core.bound import Commit
from webhook.core.mutate import AdmissionContext
from webhook.core.served import decide_batch

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
