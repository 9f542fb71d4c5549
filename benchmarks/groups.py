"""Groups on supernodes: does each stay in one domain, do as many fit as could, and how fast.

Real components: 1,024 nodes of 8 GPUs in switchboxes of 64 and dragonflies of 8. Some nodes have a
GPU out of service, so that a group of 8 whole nodes mostly has to go to a switchbox, and room is
scarce. The first group comes alone, which gives the time from its first to its last bind. Then all
others come at once, their pods in an order drawn at random.
"""

import contextlib
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from allocator.model.gpu import Node
from benchmarks.control_plane import control_plane
from benchmarks.groups_truth import Boxes, GroupsTruth, groups_truth, most_groups
from benchmarks.report import Bar, conclude, parser, table
from benchmarks.storm_cluster import (
    CLIENT,
    FLAGS,
    GPUS,
    gpu_node,
    inventory,
    node_names,
    ready_node,
    run_all,
)
from benchmarks.storm_run import Watch
from compiled import apart
from tests.builders.supernodes import node_group
from tests.cluster.api import Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.extender import apply, extender
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import PODS, Installation, installation
from tests.cluster.ports import free_port
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.topo_master import topo_master

FLY: Final = 8  # nodes of a dragonfly
FLIES: Final = 8  # of a switchbox
PODS_OF_A_GROUP: Final = 8
SIZE: Final = PODS_OF_A_GROUP * GPUS
BROKEN: Final = 0.4  # of the nodes: one GPU is out of service
SEED: Final = 17
PATIENCE: Final = 300.0  # seconds for all groups
STILL: Final = 30.0  # seconds without a bind after which no more are expected
CANNOT_RUN: Final = 2
PLACED_RATIO: Final = 0.98
GROUP_SECONDS: Final = 2.0
WHOLE: Final = {
    "volcano.sh/vgpu-number": GPUS,
    "volcano.sh/vgpu-cores": 100,
    "volcano.sh/vgpu-memory-percentage": 100,
}
ROOM: Final = {
    "volcano.sh/vgpu-number": str(GPUS),
    "volcano.sh/vgpu-cores": str(100 * GPUS),
    "volcano.sh/vgpu-memory-percentage": str(100 * GPUS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsRun:
    """What was seen."""

    seconds: float  # from the first to the last bind of a group that comes alone
    all_seconds: float  # from the creation of all others to the last bind
    most: int  # groups that fit
    truth: GroupsTruth

    @property
    def placed_ratio(self) -> float:
        """Return the groups that were placed, of those that could be."""
        return self.truth.placed / self.most


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Nodes, which of them have a GPU out of service, and their supernodes."""

    names: Sequence[str]
    broken: frozenset[str]
    boxes: Boxes


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, judge; return the exit code."""
    command = parser("Measure how groups of pods are placed on supernodes by kube-scheduler.")
    command.add_argument("--nodes", type=int, default=1024, help="nodes, with 8 GPUs each (1024)")
    command.add_argument("--groups", type=int, default=64, help="groups of 64 GPUs (64)")
    command.add_argument("--replicas", type=int, default=2, help="replicas of ours (2)")
    options = command.parse_args(arguments)
    programs = control_plane()
    if programs is None:
        return CANNOT_RUN
    run = measure(programs, nodes=options.nodes, groups=options.groups, replicas=options.replicas)
    rows = [
        ("groups that fit", run.most),
        ("groups placed", run.truth.placed),
        ("groups in several domains", run.truth.split),
        ("pods bound", run.truth.bound),
        ("seconds of one group alone", f"{run.seconds:.2f}"),
        ("seconds of all others at once", f"{run.all_seconds:.1f}"),
    ]
    print(table(("", "groups"), rows))
    return conclude(bars(run), {"run": asdict(run)}, options.json)


def bars(run: GroupsRun) -> list[Bar]:
    """Return what is promised of groups."""
    return [
        Bar(name="split_groups", value=run.truth.split, limit=0, at_most=True),
        Bar(name="placed_ratio", value=run.placed_ratio, limit=PLACED_RATIO),
        Bar(name="group_seconds", value=run.seconds, limit=GROUP_SECONDS, at_most=True),
    ]


def measure(programs: Mapping[str, Path], *, nodes: int, groups: int, replicas: int) -> GroupsRun:
    """Run all of it once on a new cluster."""
    names = node_names(nodes)
    draw = random.Random(SEED)
    broken = frozenset(draw.sample(names, int(BROKEN * nodes)))
    boxes = boxes_of(names)
    with (
        tempfile.TemporaryDirectory(prefix="groups-", ignore_cleanup_errors=True) as folder,
        _site(programs, Path(folder), _Fleet(names, broken, boxes), replicas=replicas) as site,
    ):
        team = site.namespace()
        members = {number: group_pods(site, team, number) for number in range(groups)}
        with Watch(site.api, team) as watch:
            run_all(lambda one: site.api.create(PODS.format(team), one), members[0])
            wait_for(lambda: len(watch.bound) == PODS_OF_A_GROUP, within=PATIENCE)
            times = list(watch.bound.values())
            others = [one for number in range(1, groups) for one in members[number]]
            draw.shuffle(others)
            run_all(lambda one: site.api.create(PODS.format(team), one), others)
            began = max(times)
            _wait_still(watch, len(others) + PODS_OF_A_GROUP)
            ended = max(watch.bound.values())
        pods = site.api.get(PODS.format(team))["items"]
        return GroupsRun(
            seconds=max(times) - min(times),
            all_seconds=ended - began,
            most=min(groups, most_groups(boxes, broken, PODS_OF_A_GROUP)),
            truth=groups_truth(pods, boxes, PODS_OF_A_GROUP),
        )


def boxes_of(names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the switchboxes of *names*, with their dragonflies."""
    boxes: dict[str, dict[str, list[str]]] = {}
    for at, name in enumerate(names):
        box, fly = at // (FLY * FLIES), at // FLY
        boxes.setdefault(f"sb-{box:03}", {}).setdefault(f"df-{fly:03}", []).append(name)
    return boxes


def _wait_still(watch: Watch, most: int) -> None:
    """Return once *most* pods are bound, or none more for a while."""

    def settled() -> bool:
        before = len(watch.bound)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: len(watch.bound) > before, within=STILL, every=0.5)
        return len(watch.bound) in {before, most}

    with contextlib.suppress(TimeoutError):
        wait_for(settled, within=PATIENCE)


@contextlib.contextmanager
def _site(
    programs: Mapping[str, Path],
    folder: Path,
    fleet: "_Fleet",
    *,
    replicas: int,
) -> Iterator[Installation]:
    """Start everything, and end it all."""
    ports = [free_port() for _ in range(replicas)]
    options = [f"--extender=127.0.0.1:{port}" for port in ports]
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(
            installation(
                programs,
                folder,
                options=options[:1],
                settings=Settings(api_server_flags=FLAGS),
                tree=apart(),
            )
        )
        apply(site, "rbac.yaml")
        for option in options[1:]:
            site.add_replica(option).start()
        hooks = [replica.port for replica in site.replicas]
        site.point_at(stack.enter_context(forwarding(hooks)))
        asked = stack.enter_context(forwarding(ports, by_request=True))
        topology = stack.enter_context(topo_master(node_group(fleet.boxes)))
        run_all(lambda node: site.api.create("/api/v1/nodes", node), map(_ready_node, fleet.names))
        inventory(site.api, [_soft_node(name, fleet.broken) for name in fleet.names])
        site.configure(f"nodeGroupURL: {topology.url}\n")
        for replica in site.replicas:
            wait_for(lambda replica=replica: _knows_tree(replica.lines()), within=PATIENCE)  # type: ignore[misc]
        site.wait_for_models("A100")
        scheduler = kube_scheduler(
            programs["kube-scheduler"],
            site.plane,
            client=CLIENT,
            extenders=[extender(asked)],
            percentageOfNodesToScore=100,
        )
        stack.callback(scheduler.stop)
        yield site


def _soft_node(name: str, broken: frozenset[str]) -> Node:
    """Build the inventory of a node, whose first GPU is out of service if it is *broken*."""
    node = gpu_node(name, 0)
    first, *rest = node.gpus
    return replace(node, gpus=(replace(first, healthy=name not in broken), *rest))


def _ready_node(name: str) -> Json:
    node = ready_node(name)
    for key in ("capacity", "allocatable"):
        node["status"][key] = {**node["status"][key], **ROOM}
    return node


def _knows_tree(lines: Sequence[Json]) -> bool:
    return any(line.get("event") == "tree of supernodes read" for line in lines)


def group_pods(site: Installation, team: str, number: int) -> list[Json]:
    """Write the pods of one group; the first one names its size."""
    name = f"g{number:02}"
    path = f"/api/v1/namespaces/{team}/configmaps"
    owner = site.api.create(path, {"metadata": {"name": name}}).body["metadata"]["uid"]
    kind = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
    container = {"name": "main", "image": "example.com/a:1", "resources": {"limits": WHOLE}}
    pods: list[Json] = [
        {
            "metadata": {
                "name": f"{name}-worker-{pod}",
                "labels": {"group": name},
                "ownerReferences": [{**kind, "uid": owner, "controller": True}],
                "annotations": {"metax-tech.com/gpu-group-size": str(SIZE)},
            },
            "spec": {"containers": [container]},
        }
        for pod in range(PODS_OF_A_GROUP)
    ]
    return pods


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
