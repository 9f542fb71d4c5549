"""Pods that a real Volcano schedules: each is promised its share exactly once."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.model.board import Placement
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.volcano.device_list import LIST_ANNOTATION
from tests.builders.model import A30, A100_40, T4, nodes_of
from tests.builders.pods import MODE
from tests.cluster.api import wait_for
from tests.cluster.installation import PODS
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.volcano_site import SERVED_WITHIN, Rig, asking


def places(rig: Rig, node: str) -> list[Placement]:
    """Return where the instances promised on a node sit."""
    grants = (g for e in rig.ledger(node) for held in e.containers for g in held.grants)
    return [grant.placed for grant in grants if grant.placed is not None]


def test_a_soft_share_is_written_finished(rig: Rig) -> None:
    """The six annotations are as the plugin leaves them: nothing is left to allocate."""
    rig.serve(nodes_of(1, T4, name="soft"))
    team = rig.site.namespace()
    rig.create(team, "p", asking("soft", 3000, mode="hami-core"))

    annotations = rig.wait_for_bound(team, "p")["p"]["metadata"]["annotations"]

    assert annotations[LIST_ANNOTATION] == "GPU-soft-0,NVIDIA,3000,0:"
    assert annotations["volcano.sh/vgpu-node"] == "soft"
    assert annotations["volcano.sh/vgpu-time"] == str(2**64 - 1)
    assert annotations["volcano.sh/bind-phase"] == "success"
    assert annotations["volcano.sh/devices-to-allocate"] == ""
    assert int(annotations["volcano.sh/bind-time"]) > 0
    assert wait_for(lambda: rig.charged("GPU-soft-0") == 3000)


def test_an_instance_is_the_one_the_scheduler_picked(rig: Rig) -> None:
    """Its name for a place means the same to both, and what it picks is taken where it is free."""
    rig.serve(nodes_of(1, A100_40, mode=Mode.MIG, name="one"))
    team = rig.site.namespace()
    rig.create(team, "p", asking("one", 18000, mode="mig"))

    rig.wait_for_bound(team, "p")

    assert rig.devices(team, "p") == "GPU-one-0[group3-0],NVIDIA,18000,0:"
    assert [(str(placed.profile), placed.start) for placed in places(rig, "one")] == [
        ("3g.20gb", 0)
    ]


def test_a_gang_on_one_gpu_gets_distinct_instances(rig: Rig) -> None:
    """Its scheduler gives all three the same instance; its own account follows what we say."""
    rig.serve(nodes_of(1, A100_40, mode=Mode.MIG, name="cut"))
    team = rig.site.namespace()
    rig.group(team, "gang", 3)
    for name in "abc":
        rig.create(team, name, asking("cut", 3000, mode="mig", group="gang"))

    rig.wait_for_bound(team, "abc")

    starts = {placed.start for placed in places(rig, "cut")}
    assert len(starts) == 3
    assert {rig.devices(team, name) for name in "abc"} == {
        f"GPU-cut-0[group1-{start}],NVIDIA,3000,0:" for start in starts
    }
    assert wait_for(lambda: rig.charged("GPU-cut-0") == 3 * 5120)


def test_two_gangs_for_two_instances(rig: Rig) -> None:
    """One gang gets both, the other neither and is told why; it comes next when they are free."""
    rig.serve(nodes_of(1, A30, mode=Mode.MIG, name="pair"))
    team = rig.site.namespace()
    for gang in ("x", "y"):
        rig.group(team, gang, 2)
    for name in ("x1", "y1", "x2", "y2"):
        rig.create(team, name, asking("pair", 10000, mode="mig", group=name[0]))

    first = wait_for(lambda: _whole_gang(rig, team), within=SERVED_WITHIN)
    second = "y" if first == "x" else "x"
    wait_for(lambda: rig.events(team, "Unschedulable"), within=SERVED_WITHIN)
    wait_for(lambda: rig.charged("GPU-pair-0") == 2 * 12288, within=SERVED_WITHIN)

    assert sorted(placed.start for placed in places(rig, "pair")) == [0, 2]
    assert {name[0] for name in rig.bound(team)} == {first}

    for name in (f"{first}1", f"{first}2"):
        rig.site.api.delete(f"{PODS.format(team)}/{name}")
    rig.release("pair")
    rig.wait_for_bound(team, (f"{second}1", f"{second}2"), within=2 * SERVED_WITHIN)
    assert sorted(placed.start for placed in places(rig, "pair")) == [0, 2]


def _whole_gang(rig: Rig, team: str) -> str:
    """Return the gang whose two members have a node; no third pod may have one."""
    bound = sorted(rig.bound(team))
    assert len(bound) <= 2, bound
    return bound[0][0] if len(bound) == 2 and bound[0][0] == bound[1][0] else ""


def test_a_pod_without_a_mode_is_cut_an_instance(rig: Rig) -> None:
    """Its scheduler takes a pod of no mode anywhere; the bind says what it became."""
    rig.serve(nodes_of(1, A30, mode=Mode.MIG, name="open"))
    team = rig.site.namespace()
    rig.create(team, "p", asking("open", 5000))

    annotations = rig.wait_for_bound(team, ["p"])["p"]["metadata"]["annotations"]

    assert annotations[MODE] == "mig"
    assert annotations[LIST_ANNOTATION] == "GPU-open-0[group1-0],NVIDIA,5000,0:"


@pytest.fixture(scope="module")
def second(rig: Rig, programs: Mapping[str, Path]) -> Iterator[None]:
    """Run a plain kube-scheduler beside Volcano's."""
    scheduler = kube_scheduler(programs["kube-scheduler"], rig.site.plane)
    yield
    scheduler.stop()


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize(
    ("node", "memory", "fit", "charge"),
    [
        pytest.param(nodes_of(1, T4, name="both-soft"), 5000, 3, 15000, id="soft"),
        pytest.param(
            nodes_of(1, A30, mode=Mode.MIG, name="both-cut"), 10000, 2, 2 * 12288, id="cut"
        ),
    ],
)
def test_two_schedulers_on_one_node(
    rig: Rig, *, node: Node, memory: int, fit: int, charge: int
) -> None:
    """What kube-scheduler's pods hold counts for Volcano's, and nothing is promised twice."""
    rig.serve(node)
    team = rig.site.namespace()
    pods = [f"p{number}" for number in range(4)]
    for number, name in enumerate(pods):
        scheduler = "default-scheduler" if number % 2 else "volcano"
        rig.create(team, name, asking(node.name, memory, scheduler=scheduler))

    wait_for(lambda: len(rig.bound(team)) == fit, within=SERVED_WITHIN)
    wait_for(lambda: rig.charged(node.gpus[0].uuid) == charge, within=SERVED_WITHIN)

    assert {entry.pod for entry in rig.ledger(node.name)} == rig.bound(team).keys()
    masks = [placed.mask for placed in places(rig, node.name)]
    assert sum(masks) == (0b1111 if masks else 0)


def test_a_gang_outlives_a_crash_of_the_control_plane(rig: Rig) -> None:
    """The first binds meet nobody; when it is back every member gets a place of its own."""
    rig.serve(nodes_of(1, A100_40, mode=Mode.MIG, name="crash"))
    team = rig.site.namespace()
    rig.group(team, "gang", 3)
    for name in "abc":
        rig.create(team, name, asking("crash", 3000, mode="mig", group="gang"))

    rig.site.first.process.kill()
    rig.site.first.start()

    rig.wait_for_bound(team, "abc", within=4 * SERVED_WITHIN)
    assert len({placed.start for placed in places(rig, "crash")}) == 3
    assert {entry.pod for entry in rig.ledger("crash")} == set("abc")
