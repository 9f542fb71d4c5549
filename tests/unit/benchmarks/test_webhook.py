"""The webhook benchmark: what it sends, and what it takes for an answer."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.webhook import Turn, audited_ratios, bars, seconds_in_turn
from benchmarks.webhook_answers import WrongAnswerError, apply_patch, check_idempotent
from benchmarks.webhook_load import LoadResult, ServerProcess, join_loads
from benchmarks.webhook_reviews import WORKLOADS, replica_reviews, reviews, shapes
from benchmarks.webhook_server import ChangingInventory, reviewer
from webhook.review.admission_review import allow

BODIES = tuple(reviews())
UID = json.loads(BODIES[0])["request"]["uid"]


def test_the_reviews_are_500_shapes_of_8_kib() -> None:
    """No two ask for the same, and none is an answer that another one's could stand in for."""
    assert len(set(shapes())) == len(set(BODIES)) == 500
    assert {len(body) for body in BODIES} == {8192}


def test_the_fleet_is_500_nodes_with_4000_gpus_and_changes() -> None:
    """Every turn brings another snapshot of as many GPUs."""
    inventory = ChangingInventory()
    before = inventory.snapshot

    inventory.change_node()

    after = inventory.snapshot
    assert after.version != before.version
    assert after.nodes != before.nodes
    assert [len(s.nodes) for s in (before, after)] == [500, 500]
    assert sum(len(node.gpus) for node in after.nodes.values()) == 4000


def test_each_review_is_rewritten_once() -> None:
    """The product's answer to each is a patch that applies; a second pass has nothing to add."""
    inventory = ChangingInventory()
    deciding, _ = reviewer(inventory, ())

    second = [apply_patch(body, deciding.mutate(body)) for body in BODIES]

    for body in second:
        check_idempotent(body, deciding.mutate(body))


def test_an_answer_that_allows_without_a_patch_is_not_taken() -> None:
    """The baseline's own answer would not pass for ours."""
    with pytest.raises(WrongAnswerError, match="no patch"):
        apply_patch(BODIES[0], allow(UID))


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        pytest.param({"op": "remove", "path": "/spec/volumes"}, "drops something", id="loses"),
        pytest.param({"op": "add", "path": "/spec/x", "value": 1}, "every GPU", id="blinds-nobody"),
    ],
)
def test_a_patch_that_does_something_else_is_not_taken(
    operation: dict[str, object], said: str
) -> None:
    """It may lose nothing, and every container must know which GPUs it sees."""
    with pytest.raises(WrongAnswerError, match=said):
        apply_patch(BODIES[0], allow(UID, operations=[operation]))


def test_a_second_patch_is_not_taken() -> None:
    """A pod that was rewritten already is to be left alone."""
    with pytest.raises(WrongAnswerError, match="second pass"):
        check_idempotent(
            BODIES[0], allow(UID, operations=[{"op": "add", "path": "/x", "value": 1}])
        )


def test_ratios_are_medians_over_the_turns() -> None:
    """Each turn is judged against its own baseline; one bad turn decides nothing."""
    slow, quick, stuck = _load(100, 8.0), _load(200, 2.0), _load(1, 900.0)

    turns = [_turn(quick, slow), _turn(quick, slow), _turn(quick, stuck)]
    throughput, audited, p99 = bars(turns)

    assert (throughput.value, throughput.holds) == (0.5, True)
    assert (audited.value, audited.holds) == (0.5, False)
    assert (p99.value, p99.holds) == (4.0, True)


@pytest.mark.parametrize(
    ("servers", "seconds", "order"),
    [
        pytest.param(1, 3, [0, 0, 0], id="one"),
        pytest.param(2, 1, [0, 1], id="once"),
        pytest.param(2, 4, [0, 1, 1, 0, 0, 1, 1, 0], id="back-and-forth"),
    ],
)
def test_each_server_has_its_seconds_early_and_late(
    servers: int, seconds: int, order: list[int]
) -> None:
    """Where a machine slows down meanwhile, none of them has only what came first."""
    assert list(seconds_in_turn(servers, seconds)) == order


WRK = """#!/bin/sh
for last; do :; done
echo "{\\"requests\\":$last,\\"seconds\\":1,\\"p50_ms\\":1,\\"p99_ms\\":1,\\"failed\\":0}"
"""


def test_no_load_repeats_the_owners_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server has seen already it answers faster; the script counts on from its argument."""
    script = tmp_path / "wrk"
    script.write_text(WRK)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with subprocess.Popen(["sleep", "60"]) as process:
        server = ServerProcess(process, port=1, bundle="")
        rounds = [server.load(tmp_path, core=0, seconds=1).requests for _ in range(3)]
        process.kill()

    assert rounds == [0, 10_000, 20_000]


def test_loads_of_one_server_are_joined() -> None:
    """Counts are added up, so that the throughput is that of all seconds together."""
    joined = join_loads([_load(100, 8.0), _load(300, 2.0), _load(200, 3.0)])

    assert joined == LoadResult(
        requests=600, seconds=3.0, p50_ms=1.0, p99_ms=3.0, failed=0, cpu_seconds=3.0
    )
    assert joined.throughput == 200.0


def test_a_ratio_of_processor_time_is_of_reviews() -> None:
    """However many were answered meanwhile: the dearer review has the smaller ratio."""
    slow, quick = _load(100, 8.0), _load(200, 2.0)

    ratios = audited_ratios([_turn(quick, slow)] * 3)

    assert ratios == {
        "audited_ratio_distinct": 2.0,
        "audited_cpu_ratio": 0.5,
        "audited_cpu_ratio_distinct": 2.0,
    }


def test_most_reviews_of_the_mix_are_of_replicas() -> None:
    """All 500 are whole reviews, and each workload asks for something else."""
    pods = [json.loads(body)["request"] for body in replica_reviews()]
    owners = Counter(pod["object"]["metadata"]["ownerReferences"][0]["uid"] for pod in pods)

    assert Counter(owners.values()) == Counter(WORKLOADS)
    assert len(pods) == len({pod["uid"] for pod in pods}) == 500
    assert {len(body) for body in replica_reviews()} == {8192}


def _turn(baseline: LoadResult, ours: LoadResult) -> Turn:
    return Turn(
        baseline=baseline,
        ours=ours,
        unaudited=baseline,
        ours_distinct=baseline,
        unaudited_distinct=ours,
    )


def _load(throughput: int, p99: float) -> LoadResult:
    return LoadResult(
        requests=throughput, seconds=1.0, p50_ms=1.0, p99_ms=p99, failed=0, cpu_seconds=1.0
    )
