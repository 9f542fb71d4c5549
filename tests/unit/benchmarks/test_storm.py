"""The storm benchmark: what it takes for wrong, what it counts, and how it judges."""

import copy

import orjson
import pytest

from allocator.catalog.keys import ASSIGNMENT_KEY
from benchmarks.storm import Door, StormRun, bars
from benchmarks.storm_cluster import Arm, gpu_node
from benchmarks.storm_door import summary
from benchmarks.storm_metrics import NO_CALLS, Hooks, hooks
from benchmarks.storm_run import Storm
from benchmarks.storm_truth import ALL_WELL, Truth, truth
from tests.builders import gpunodes
from tests.builders.gpunodes import Json, entry
from tests.builders.model import mig_grant, soft_grant

SOFT, CUT = gpu_node("a", 0), gpu_node("b", 1)
SHARE = soft_grant(3000, gpu="GPU-a-0")
LEDGER = orjson.loads(orjson.dumps(gpunodes.gpu_node(SOFT, [entry("u", SHARE)])))
EMPTY = gpunodes.gpu_node(CUT)


def bound(uid: str, node: str, told: object) -> Json:
    annotations = {ASSIGNMENT_KEY: orjson.dumps(told).decode()}
    metadata = {"name": f"pod-{uid}", "uid": uid, "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": node}}


WELL = bound("u", "a", LEDGER["spec"]["entries"][0]["containers"])


def test_a_pod_that_has_what_it_was_told_is_well() -> None:
    """One promise, on its node, as its annotation says."""
    assert truth([WELL], [LEDGER, EMPTY]) == ALL_WELL


@pytest.mark.parametrize(
    ("pod", "ledgers", "kind"),
    [
        pytest.param({**WELL, "spec": {}}, [LEDGER], "unbound", id="unbound"),
        pytest.param(WELL, [EMPTY], "lost", id="lost"),
        pytest.param(
            WELL,
            [gpunodes.gpu_node(SOFT, [entry("u", SHARE), entry("u", SHARE)])],
            "doubled",
            id="doubled",
        ),
        pytest.param(
            WELL, [LEDGER, gpunodes.gpu_node(CUT, [entry("u", SHARE)])], "stray", id="stray"
        ),
        pytest.param(bound("u", "a", []), [LEDGER], "misled", id="misled"),
    ],
)
def test_what_is_wrong_with_a_pod_is_named(pod: Json, ledgers: list[Json], kind: str) -> None:
    """Each pod has at most one thing wrong, and it counts."""
    found = truth([pod], ledgers)

    assert getattr(found, kind) == ("pod-u",)
    assert found.wrong_count == 1


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(
            gpunodes.gpu_node(SOFT, [entry(u, soft_grant(30000, gpu="GPU-a-0")) for u in "uv"]),
            id="memory",
        ),
        pytest.param(
            gpunodes.gpu_node(
                CUT, [entry(u, mig_grant("3g.20gb", 0, gpu="GPU-b-0")) for u in "uv"]
            ),
            id="slots",
        ),
    ],
)
def test_a_gpu_that_promises_more_than_it_has_is_found(node: Json) -> None:
    """Shares are added up, instances may not overlap."""
    assert len(truth([], [copy.deepcopy(node)]).overfull) == 1


def test_metrics_of_the_api_server_are_counted() -> None:
    """Other hooks, and refusals for other reasons than conflict, are nobody's business here."""
    calls, refusals, opened = (
        "admission_duration_seconds_count",
        "rejection_count",
        "fail_open_count",
    )
    text = "\n".join(
        [
            sample(calls, 90, rejected="false"),
            sample(calls, 10, rejected="true"),
            sample(refusals, 3, error_type="no_error", rejection_code="409"),
            sample(refusals, 4, error_type="no_error", rejection_code="403"),
            sample(refusals, 5, error_type="calling_webhook_error", rejection_code="0"),
            sample(refusals, 6, name="other.example.com", error_type="calling_webhook_error"),
            sample(opened, 7, name="others.vgpu-admission.io"),
        ]
    )

    assert hooks(text) == Hooks(binds=100, conflicts=3, unanswered=12)
    assert hooks(text).difference(hooks(text)) == NO_CALLS


def sample(metric: str, value: int, **labels: str) -> str:
    """Write one sample as the API server exposes it."""
    named = {"name": "bindings.vgpu-admission.io", **labels}
    written = ",".join(f'{name}="{text}"' for name, text in named.items())
    return f"apiserver_admission_webhook_{metric}{{{written}}} {value}"


def test_the_last_percentile_is_not_the_middle() -> None:
    """One in fifty is slow: p50 does not show it, p99 does."""
    p50, p99 = summary([0.005] * 196 + [0.1] * 4)

    assert (p50, p99) == (5.0, 100.0)


def test_ratios_are_of_one_turn_and_what_may_not_happen_adds_up() -> None:
    """A turn on a slow machine is judged against its own baseline, conflicts by the worst arm."""
    lost = Truth(lost=("p",))
    turns = [turn(200, 120, 100), turn(100, 60, 50), turn(300, 30, 30, told=lost)]

    judged = {bar.name: (bar.value, bar.holds) for bar in bars(turns)}

    assert judged == {
        "bound_ratio_hook": (0.6, True),
        "bound_ratio": (0.5, True),
        "conflict_pct": (3.0, False),
        "timeouts": (0, True),
        "lost_or_doubled": (3, False),
        "writes_for_64": (8, True),
        "hook_p99_ms": (20.0, True),
    }


def turn(nothing: int, hook: int, extender: int, *, told: Truth = ALL_WELL) -> list[StormRun]:
    """Make a turn of storms by their rates; with two replicas more binds meet others."""
    calls = Hooks(binds=100, conflicts=2)
    door = Door(writes=8, p50_ms=5.0, p99_ms=20.0)
    return [
        StormRun(arm=Arm.NOTHING, storm=_storm(nothing)),
        StormRun(arm=Arm.HOOK, storm=_storm(hook), hooks=calls, truth=told, door=door),
        StormRun(arm=Arm.EXTENDER, storm=_storm(extender), hooks=calls, truth=told),
        StormRun(
            arm=Arm.REPLICAS,
            storm=_storm(extender),
            hooks=Hooks(binds=100, conflicts=3),
            truth=told,
        ),
    ]


def _storm(rate: int) -> Storm:
    return Storm(namespace="t", pods=rate, bound=rate, seconds=1.0)
