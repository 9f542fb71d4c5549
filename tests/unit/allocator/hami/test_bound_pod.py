"""What a bound pod says to HAMi is what its scheduler would count, and no more."""

from datetime import UTC, datetime

from allocator.catalog.hami_keys import ALLOCATED_KEY, TO_ALLOCATE_KEY
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.families.family import BoundPod
from allocator.hami.bound_pod import hami_annotations
from allocator.model.allocation import Assignment, Grant
from allocator.model.request import Mode, Stage
from tests.builders.gpunodes import held
from tests.builders.model import A100_40, ask, gpu, mig_grant, node, pod, soft_grant

NOW = datetime(2026, 11, 25, 3, 0, 0, tzinfo=UTC)


def lists(grant: Grant, mode: Mode, *, ours: bool) -> tuple[str, str]:
    """Return what is written of a pod that got *grant*: all of it, and what waits for a plugin."""
    bound = BoundPod(
        assignment=Assignment(
            node="n0", mode=mode, containers=(held(Stage.APP, grant, name="main"),)
        ),
        request=pod(ask(4000)),
        node=node("n0", gpu(A100_40, mode=mode)),
        containers=("main", "side"),
        init_containers=(),
        vocabularies=VOCABULARIES,
        ours=ours,
        now=NOW,
    )
    written = hami_annotations(bound)
    return written[ALLOCATED_KEY], written[TO_ALLOCATE_KEY]


def test_instances_are_not_listed() -> None:
    """HAMi would close their GPU for everybody, as it has reserved none there."""
    assert lists(mig_grant("1g.5gb", 0), Mode.MIG, ours=True) == (";;", ";;")


def test_shares_are_listed_and_wait_only_for_hamis_plugin() -> None:
    """Our agent leaves nothing to allocate."""
    grant = soft_grant(4000, 30, gpu="GPU-n0-0")

    assert lists(grant, Mode.HAMI_CORE, ours=True) == ("GPU-n0-0,NVIDIA,4000,30:;;", ";;")
    assert lists(grant, Mode.HAMI_CORE, ours=False) == ("GPU-n0-0,NVIDIA,4000,30:;;",) * 2
