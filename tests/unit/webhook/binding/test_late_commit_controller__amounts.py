"""A late promise is of as much as the pod asks for, whatever it tells, and shared as it runs."""

from dataclasses import replace

import orjson
import pytest

from allocator.config.settings import NodeAgent
from allocator.model.allocation import Entry, Grant
from allocator.model.request import Mode, Stage
from tests.builders.gpunodes import Json, entry, held, several
from tests.builders.model import A100_40, T4, mig_grant, nodes_of, soft_grant
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.harness.late_commits import ASSIGNMENT, NODE, USED, as_told, bound, scene, wire
from tests.unit.webhook.binding.test_late_commit_controller__takeover import started

OURS, UPSTREAM = NodeAgent.OURS, NodeAgent.UPSTREAM
SMALL = nodes_of(2, T4)
CUT = nodes_of(1, A100_40, mode=Mode.MIG)
SHARING = pod(
    container("app", {NUMBER: 1, MEMORY: 10000}),
    init=[container("init", {NUMBER: 1, MEMORY: 10000})],
)


def sharing(first: Stage = Stage.INIT, *, gpu: int = 0) -> Entry:
    """Promise one GPU to both containers of SHARING, one after the other."""
    grant = soft_grant(10000, gpu=f"GPU-n0-{gpu}")
    return several("uid-p", held(first, grant, name="init"), held(Stage.APP, grant, name="app"))


def test_a_pod_that_was_not_told_at_once_is_told_what_stands() -> None:
    """The annotation was lost on its way, once; what its containers share is no obstacle."""
    asking = bound({}, asking=SHARING, node=SMALL)

    found = scene(asking, sharing(gpu=1), node=SMALL).sweep()

    assert [one.containers for one in found.promised] == [sharing(gpu=1).containers]
    assert (found.how, found.annotations[ASSIGNMENT]) == (["kept"], as_told(sharing(gpu=1)))


@pytest.mark.parametrize("told", [Stage.INIT, Stage.APP], ids=["now", "before-stages"])
def test_a_pod_is_given_back_what_it_runs_on(told: Stage) -> None:
    """After a lost ledger the agent confirms what the containers share, however it was told."""
    asking = bound({ASSIGNMENT: as_told(sharing(told))}, asking=SHARING, node=SMALL)

    found = scene(started(asking), node=SMALL, unpromised=[wire(sharing())]).sweep()

    assert [one.containers for one in found.promised] == [sharing().containers]
    assert found.how == ["confirmed"]


FREE, ALL = soft_grant(0, gpu="GPU-n0-1"), soft_grant(NODE.gpus[1].memory, 100, gpu="GPU-n0-1")


@pytest.mark.parametrize("agent", [OURS, UPSTREAM])
@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(FREE, id="nothing"),
        pytest.param(ALL, id="everything"),
        pytest.param(
            Grant(gpu=FREE.gpu, mode=Mode.MEMORY_ONLY, memory=FREE.memory, cores=FREE.cores),
            id="unenforced",
        ),
    ],
)
def test_how_much_a_pod_uses_is_what_it_asks_for(claim: Grant, agent: NodeAgent) -> None:
    """Its own annotations say on which GPU; a tenant may write them."""
    lie = entry("uid-p", claim)
    asking = started(bound({ASSIGNMENT: as_told(lie)}, agent))
    seen = [wire(lie)] if agent is OURS else []  # which goes by the same annotation

    found = scene(asking, agent=agent, unpromised=seen).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert orjson.loads(found.annotations[ASSIGNMENT]) == orjson.loads(as_told(USED))


def test_an_instance_has_the_memory_that_its_board_says() -> None:
    """Where it is, is told, and what it is like, its profile says."""
    asking = pod(container(limits={NUMBER: 1, MEMORY: 3000}), annotations={MODE: "mig"})
    true = mig_grant("1g.5gb", 3, gpu="GPU-n0-0")
    lie = replace_amounts(wire(entry("uid-p", true)))
    told = {ASSIGNMENT: orjson.dumps(lie["containers"]).decode()}

    found = scene(bound(told, UPSTREAM, asking, node=CUT), agent=UPSTREAM, node=CUT).sweep()

    assert [one.containers for one in found.promised] == [entry("uid-p", true).containers]


def replace_amounts(found: Json) -> Json:
    for one in found["containers"]:
        one["devices"] = [device | {"memoryMiB": 0, "cores": 100} for device in one["devices"]]
    return found


def test_another_container_is_not_believed() -> None:
    """Who claims for a container that asks for nothing is promised nothing."""
    lie = replace(USED, containers=(held(Stage.APP, soft_grant(3000), name="other"),))
    asking = bound({ASSIGNMENT: as_told(lie)}, UPSTREAM)

    found = scene(asking, agent=UPSTREAM).sweep()

    assert found.promised == ()
    assert "not as requested" in found.events[0].note
