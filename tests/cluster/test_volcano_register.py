"""What deviceshare cannot see is shown to it: it goes where there is room, and never crashes."""

from dataclasses import replace

import pytest

from allocator.ledger.schema import spec_of, status_of
from allocator.model.gpu import Gpu
from allocator.model.units import MiB
from allocator.volcano.register import HANDSHAKE_ANNOTATION, decode_register
from manifests.generator.names import CONTROL_PLANE
from tests.builders.gpunodes import entry
from tests.builders.model import T4, nodes_of, soft_grant
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.installation import GPU_NODES
from tests.cluster.site import Who
from tests.cluster.volcano_site import NODES, SERVED_WITHIN, Rig, asking

GHOST = "00000000-0000-4000-8000-000000000001"


def counts(rig: Rig, node: str) -> list[tuple[int, int]]:
    """Return what is registered of each GPU: slots and memory."""
    return [(r.count, r.memory) for r in decode_register(rig.register(node)).records]


def sick(gpu: Gpu) -> Gpu:
    return replace(gpu, healthy=False)


def held_by_others(gpu: Gpu) -> Gpu:
    return replace(gpu, foreign=MiB(gpu.memory - 1000))


@pytest.mark.parametrize("change", [sick, held_by_others])
def test_it_leaves_a_gpu_alone_that_has_nothing_to_give(rig: Rig, change: object) -> None:
    """By itself it takes the last GPU, whatever its health and whoever uses its memory."""
    name = f"bad-{change.__name__.replace('_', '-')}"  # type: ignore[attr-defined]
    node = nodes_of(2, T4, name=name)
    rig.serve(node)
    team = rig.site.namespace()
    rig.create(team, "before", asking(name, 3000))
    rig.wait_for_bound(team, ["before"])
    assert rig.picked(team, "before") == [f"GPU-{name}-1"]

    standing = counts(rig, name)
    gpus = (node.gpus[0], change(node.gpus[1]))  # type: ignore[operator]
    rig.status(name, status_of(replace(node, gpus=gpus)))
    wait_for(lambda: counts(rig, name) != standing, within=SERVED_WITHIN)
    rig.create(team, "after", asking(name, 3000))
    rig.wait_for_bound(team, ["after"])

    assert rig.picked(team, "after") == [f"GPU-{name}-0"]
    assert rig.devices(team, "after") == f"GPU-{name}-0,NVIDIA,3000,0:"


def test_a_pod_that_is_over_counts_until_its_agent_lets_go(rig: Rig) -> None:
    """Its own account forgets a pod that ended at once; the GPU is not free before we know."""
    node = nodes_of(2, T4, name="held")
    rig.serve(node)
    ghost = entry(GHOST, soft_grant(15000, gpu="GPU-held-1"))
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    rig.status("held", {"held": [GHOST]})
    body = {"spec": spec_of([ghost])}
    rig.site.api.request("PATCH", f"{GPU_NODES}/held", body, headers=headers)
    wait_for(lambda: counts(rig, "held")[1] == (9, 360), within=SERVED_WITHIN)

    team = rig.site.namespace()
    rig.create(team, "p", asking("held", 3000))
    rig.wait_for_bound(team, ["p"])

    assert rig.picked(team, "p") == ["GPU-held-0"]


def test_a_node_without_inventory_is_shut_and_crashes_nobody(rig: Rig) -> None:
    """The register stays and gives nothing; a pod that wants the node waits."""
    rig.serve(nodes_of(1, T4, name="shut"))
    rig.status("shut", {"inventory": None})
    wait_for(lambda: counts(rig, "shut") == [(0, 15360)], within=SERVED_WITHIN)
    team = rig.site.namespace()

    rig.create(team, "p", asking("shut", 3000))
    wait_for(lambda: rig.events(team, "Unschedulable"), within=SERVED_WITHIN)

    assert not rig.bound(team)
    assert rig.volcano.scheduler.running


def test_a_node_that_was_given_up_is_taken_back(rig: Rig) -> None:
    """Where its scheduler deleted a node for silence, the handshake is answered."""
    rig.serve(nodes_of(1, T4, name="silent"))
    gone = {"metadata": {"annotations": {HANDSHAKE_ANNOTATION: "Deleted_2026.11.21 20:00:00"}}}
    rig.site.api.patch(f"{NODES}/silent", gone)
    # Answered, and then asked again by a scheduler that has read the answer. Before it has, its
    # predicates crash on a pod that asks for the node.
    wait_for(lambda: handshake(rig, "silent").startswith("Requesting"), within=SERVED_WITHIN)
    team = rig.site.namespace()

    rig.create(team, "p", asking("silent", 3000))

    rig.wait_for_bound(team, ["p"])


def handshake(rig: Rig, node: str) -> str:
    return str(rig.site.api.get(f"{NODES}/{node}")["metadata"]["annotations"][HANDSHAKE_ANNOTATION])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"labels": {"pool": "mine"}}}, id="label"),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, id="annotation"),
        pytest.param({"spec": {"unschedulable": True}}, id="spec"),
    ],
)
def test_the_right_to_patch_nodes_is_held_to_the_register(rig: Rig, change: Json) -> None:
    """A control plane that is taken over cannot move anybody's workload by it."""
    rig.site.api.create(NODES, {"metadata": {"generateName": "any-"}}, dryRun="All")
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    name = rig.site.api.get(NODES)["items"][0]["metadata"]["name"]

    with pytest.raises(ApiError, match="may change only a few annotations of a Node"):
        rig.site.api.request(
            "PATCH", f"{NODES}/{name}", change, headers=headers, query={"dryRun": "All"}
        )


def test_what_a_register_cannot_say_is_refused_in_words(rig: Rig) -> None:
    """Cores that somebody else holds are no field of it: one of the gang waits, and is told why.

    Volcano's account keeps what it charged for a bind that was refused until it counts anew.
    """
    rig.serve(nodes_of(1, T4, name="cores"))
    ghost = entry(GHOST, soft_grant(100, 60, gpu="GPU-cores-0"))
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    rig.status("cores", {"held": [GHOST]})
    body = {"spec": spec_of([ghost])}
    rig.site.api.request("PATCH", f"{GPU_NODES}/cores", body, headers=headers)
    team = rig.site.namespace()
    rig.group(team, "gang", 2)
    for name in ("a", "b"):
        rig.create(team, name, asking("cores", 1000, cores=30, group="gang"))

    told = wait_for(
        lambda: [e for e in rig.events(team, "FailedScheduling") if "denied" in e],
        within=SERVED_WITHIN,
    )
    assert 'node "cores": container "main"' in told[0]
    assert len(rig.bound(team)) == 1

    rig.release("cores", left=1)
    rig.wait_for_bound(team, ("a", "b"), within=2 * SERVED_WITHIN)
