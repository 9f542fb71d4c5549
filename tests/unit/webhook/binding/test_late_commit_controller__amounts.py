"""A late promise is of as much as the pod asks for, whatever it tells, and shared as it runs."""

from dataclasses import replace

import msgspec
import orjson
import pytest

from allocator.config.settings import NodeAgent
from allocator.model.allocation import Entry, Grant
from allocator.model.request import Mode, Stage
from tests.builders.bindings import stored
from tests.builders.gpunodes import Json, entry, held, several
from tests.builders.model import A100_40, T4, mig_grant, nodes_of, soft_grant
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod, received
from tests.harness.late_commits import ASSIGNMENT, NODE, SIX, USED, as_told, bound, scene, wire
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
            msgspec.structs.replace(FREE, mode=Mode.MEMORY_ONLY),
            id="unenforced",
        ),
        pytest.param(msgspec.structs.replace(FREE, share="a-class"), id="beside-others"),
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


def never_seen(asking: Json, annotations: dict[str, str]) -> Json:
    """Make a pod on the node that was created while admission was away."""
    document = stored(received(asking), name="p", uid="uid-p")
    document["spec"]["nodeName"] = "n0"
    document["metadata"].setdefault("annotations", {}).update(annotations)
    return document


UNENFORCED = msgspec.structs.replace(soft_grant(3 * 1024, gpu="GPU-n0-1"), mode=Mode.MEMORY_ONLY)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(SIX, id="listed"),
        pytest.param(
            {ASSIGNMENT: as_told(entry("uid-p", soft_grant(0, gpu="GPU-n0-1")))}, id="told"
        ),
    ],
)
def test_a_pod_that_admission_never_saw_shares_as_it_asks(told: dict[str, str]) -> None:
    """Its resources come with a mode, which no annotation of ours tells yet."""
    asking = pod(container(limits={"aliyun.com/gpu-mem": 3}))

    found = scene(never_seen(asking, told), agent=UPSTREAM).sweep()

    assert [one.containers for one in found.promised] == [entry("uid-p", UNENFORCED).containers]


def test_a_mode_that_admission_chose_is_kept() -> None:
    """The fleet was in MIG mode when it was admitted; a GPU that left it serves it no other way."""
    whole = nodes_of(1, A100_40)
    told = {ASSIGNMENT: as_told(entry("uid-p", soft_grant(3000, gpu="GPU-n0-0")))}

    found = scene(bound(told, UPSTREAM, node=CUT), agent=UPSTREAM, node=whole).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]


@pytest.mark.parametrize("agent", [OURS, UPSTREAM])
def test_a_gpu_that_is_not_there_is_not_promised(agent: NodeAgent) -> None:
    """Whoever names one is told, and the sweep goes on."""
    told = entry("uid-p", soft_grant(3000, gpu="GPU-gone"))
    seen = [wire(told)] if agent is OURS else []
    asking = bound({ASSIGNMENT: as_told(told)}, agent)

    found = scene(asking, agent=agent, unpromised=seen).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]
