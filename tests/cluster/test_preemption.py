"""A real kube-scheduler that asks us whom to evict: PriorityClasses decide who has a GPU."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from uuid import uuid4

import pytest

from allocator.ledger.decode import decode
from allocator.model.gpu import Node
from allocator.model.request import Mode
from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import A100_40, nodes_of, profile
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.extender import add_extender, apply, extender
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.site import Who

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
CLASSES = {"high-priority": 100, "med-priority": 50, "low-priority": 10}
WITHIN = 60.0  # seconds; the scheduler's back-off is ten at most
WHOLE = 40000  # MiB; nothing of a third fits beside it
TURNS = 6  # seconds in which a scheduler that would evict again has had its chance


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with Kubernetes' controllers, but no GPU yet.

    Its scheduler asks two replicas, each of which knows by itself who is nominated where: each
    question goes to the one whose turn it is.
    """
    folder = tmp_path_factory.mktemp("preemption")
    with installation(programs, folder, settings=Settings(controllers=True)) as found:
        for name, value in CLASSES.items():
            kind = {"metadata": {"name": name}, "value": value}
            found.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", kind)
        apply(found, "rbac.yaml")
        with forwarding([add_extender(found)[1] for _ in range(2)], by_request=True) as port:
            program, asked = programs["kube-scheduler"], [extender(port)]
            scheduler = kube_scheduler(program, found.plane, extenders=asked)
            yield found
            scheduler.stop()


@contextlib.contextmanager
def machines(site: Installation, team: str, *nodes: Node) -> Iterator[None]:
    """Add nodes that tell the scheduler exactly what they have; they and the team's pods go."""
    for node in nodes:
        site.add_node(node)
        memory = sum(gpu.memory for gpu in node.gpus)
        room = {"cpu": "8", "memory": "32Gi", "pods": "110", MEMORY: str(memory)}
        room[NUMBER] = str(sum(gpu.slots for gpu in node.gpus))
        site.api.patch(f"/api/v1/nodes/{node.name}", {"spec": {"taints": []}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        site.api.patch(f"/api/v1/nodes/{node.name}/status", {"status": status})
    site.wait_for_models("A100")
    try:
        yield
    finally:
        for group in (JOBS, PODS):
            at_once = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            site.api.delete(group.format(team), at_once)
        for node in nodes:
            site.api.delete(f"/api/v1/nodes/{node.name}")


def share(name: str, memory: int, priority: str) -> Json:
    """Write a pod that shares a GPU in software and has its own time to end."""
    written = pod(
        container(limits={NUMBER: 1, MEMORY: memory}),
        annotations={"volcano.sh/vgpu-mode": "hami-core"},
        priorityClassName=priority,
        restartPolicy="Never",
    )
    return written | {"metadata": {**written["metadata"], "name": name}}


def instance(name: str, profile: str, priority: str) -> Json:
    """Write a pod that asks for a MIG instance by its profile."""
    written = share(name, 1, priority)
    written["metadata"]["annotations"] = {"vgpu-admission.io/mig-profile": profile}
    del written["spec"]["containers"][0]["resources"]["limits"][MEMORY]
    return written


def job(name: str, priority: str) -> Json:
    """Write the twin of a job of the practice guide: three pods that take all there is together."""
    made = share(name, WHOLE // 3, priority)
    template = {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}
    spec = {"parallelism": 3, "completions": 3, "backoffLimit": 100, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def living(site: Installation, team: str) -> list[Json]:
    """Return the pods that have a node and were not told to end."""
    pods = site.api.get(PODS.format(team))["items"]
    return [
        found
        for found in pods
        if found["spec"].get("nodeName")
        and not found["metadata"].get("deletionTimestamp")
        and found["status"].get("phase") not in {"Succeeded", "Failed"}
    ]


def running(site: Installation, team: str) -> dict[str, int]:
    """Count them by their job."""
    counts: dict[str, int] = {}
    for found in living(site, team):
        of = found["metadata"].get("labels", {}).get("job-name", found["metadata"]["name"])
        counts[of] = counts.get(of, 0) + 1
    return counts


def preempted(site: Installation, team: str) -> set[str]:
    """Return who was evicted; a scheduler may say so of one pod for each of several preemptors."""
    events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return {event["regarding"]["name"] for event in events if event["reason"] == "Preempted"}


def end(site: Installation, team: str) -> None:
    """Do what a kubelet does to pods that were told to end."""
    for found in site.api.get(PODS.format(team))["items"]:
        place = f"{PODS.format(team)}/{found['metadata']['name']}"
        if found["metadata"].get("deletionTimestamp") and found["spec"].get("nodeName"):
            with contextlib.suppress(ApiError):  # gone meanwhile
                site.api.patch(f"{place}/status", {"status": {"phase": "Failed"}})
                site.api.delete(place, {"gracePeriodSeconds": 0})


def account(site: Installation, node: str) -> None:
    """Do what an agent does: say that it has seen the ledger and holds nothing of it."""
    generation = site.api.get(f"{GPU_NODES}/{node}")["metadata"]["generation"]
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    seen = {"status": {"observedGeneration": generation}}
    site.api.request("PATCH", f"{GPU_NODES}/{node}/status", seen, headers=headers)


def settle(site: Installation, team: str, *nodes: str) -> None:
    """Let those who were told to end be gone, and their room be free."""
    end(site, team)
    for node in nodes:
        account(site, node)


def names(site: Installation, team: str) -> set[str]:
    return {found["metadata"]["name"] for found in living(site, team)}


def nudge(site: Installation, *nodes: str) -> None:
    """Wake whoever waits, as anything that happens to a node does."""
    for node in nodes:
        site.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"turn": uuid4().hex}}})


def test_three_jobs_share_a_gpu_by_priority(site: Installation) -> None:
    """The practice guide's priority test on GPU memory: each job in turn gives way to a higher."""
    team = site.namespace()

    def settled(job: str) -> bool:
        settle(site, team, "only")
        return running(site, team) == {job: 3}

    with machines(site, team, nodes_of(1, A100_40, name="only")):
        for name in ("low", "med", "high"):
            site.api.create(JOBS.format(team), job(name, f"{name}-priority"))
            wait_for(lambda name=name: settled(name), within=WITHIN)  # type: ignore[misc]
        assert len(preempted(site, team)) == 6

        site.api.delete(f"{JOBS.format(team)}/high", {"propagationPolicy": "Foreground"})

        wait_for(lambda: settled("med"), within=WITHIN)


@pytest.mark.parametrize("nodes", [("alone",), ("here", "there")], ids=["one-node", "two-nodes"])
def test_a_preemptor_among_many_preempts_once(site: Installation, nodes: tuple[str, ...]) -> None:
    """While room is being made nobody else is evicted for it, and none of a stream takes it."""
    team, stream = site.namespace(), (f"low-{number}" for number in count())
    with machines(site, team, *(nodes_of(1, A100_40, name=name) for name in nodes)):
        for name in islice(stream, len(nodes)):
            site.create(team, share(name, WHOLE, "low-priority"))
        wait_for(lambda: len(living(site, team)) == len(nodes), within=WITHIN)
        first = names(site, team)
        site.create(team, share("high", WHOLE, "high-priority"))
        victim = wait_for(lambda: preempted(site, team), within=WITHIN)

        def nothing_more_happens() -> bool:
            for name in islice(stream, TURNS):
                site.create(team, share(name, WHOLE, "low-priority"))
                nudge(site, *nodes)
                time.sleep(1.0)
            return preempted(site, team) == victim and names(site, team) == first - victim

        assert nothing_more_happens()  # while the victim ends
        end(site, team)
        assert nothing_more_happens()  # while its node holds on to what it was promised
        settle(site, team, *nodes)
        wait_for(lambda: "high" in names(site, team), within=WITHIN)

        assert len(victim) == 1
        assert preempted(site, team) == victim


def test_sums_are_not_places(site: Installation) -> None:
    """The scheduler would evict the two least important pods, on two GPUs: one GPU is emptied."""
    team = site.namespace()
    there = {"a": "low-priority", "b": "med-priority", "c": "low-priority", "d": "high-priority"}
    with machines(site, team, nodes_of(2, A100_40, name="two")):
        for name, priority in there.items():  # by twos on a GPU, for they are packed
            site.create(team, share(name, WHOLE // 2, priority))
            wait_for(lambda name=name: name in names(site, team), within=WITHIN)  # type: ignore[misc]

        site.create(team, share("whole", WHOLE, "high-priority"))

        def arrived() -> bool:
            settle(site, team, "two")
            return "whole" in names(site, team)

        wait_for(arrived, within=WITHIN)
        assert names(site, team) == {"c", "d", "whole"}
        assert preempted(site, team) == {"a", "b"}


def starts(site: Installation, node: str) -> dict[str, int]:
    """Return the first memory slot that each pod is promised on the only GPU of *node*."""
    found = {}
    for entry in decode(site.api.get(f"{GPU_NODES}/{node}")).entries:
        (grant,) = entry.containers[0].grants
        assert grant.placed is not None
        found[entry.pod] = grant.placed.start
    return found


def cheapest(there: Mapping[str, int], wanted: str) -> set[str]:
    """Return who must go from a board full of the smallest instances, by trying every place.

    The highest priority among them as low as can be, then as few as can be.
    """
    large, small = profile(wanted), profile("1g.5gb")
    ways = [
        {name for name, start in there.items() if small.mask(start) & large.mask(place)}
        for place in large.starts
    ]
    return min(ways, key=lambda way: (max(CLASSES[priority_of(name)] for name in way), len(way)))


def priority_of(name: str) -> str:
    return f"{name.partition('-')[0]}-priority"


@pytest.mark.parametrize(
    ("classes", "evicted"),
    [
        pytest.param("low low low low low low low", 3, id="where-fewest-sit"),
        pytest.param("low low low med low low low", 3, id="around-one-that-matters-more"),
        pytest.param("low low med low low low low", 4, id="more-that-matter-less"),
    ],
)
def test_a_legal_place_comes_free_on_a_full_board(
    site: Installation, classes: str, evicted: int
) -> None:
    """The scheduler, which counts, would evict one pod: all that sit on one place go, and once.

    A 3g.20gb begins at memory slot 0 or 4 of 8, and there are seven pods on the first seven.
    """
    team = site.namespace()
    board = nodes_of(1, A100_40, mode=Mode.MIG, name=f"board-{team}")
    board = replace(board, gpus=(replace(board.gpus[0], slots=7),))
    with machines(site, team, board):
        for number, name in enumerate(classes.split()):
            made = f"{name}-{number}"
            site.create(team, instance(made, "1g.5gb", priority_of(made)))
            wait_for(lambda made=made: made in names(site, team), within=WITHIN)  # type: ignore[misc]
        there = starts(site, board.name)
        expected = cheapest(there, "3g.20gb")
        assert len(expected) == evicted

        site.create(team, instance("high", "3g.20gb", "high-priority"))
        wait_for(lambda: preempted(site, team) >= expected, within=WITHIN)
        end(site, team)
        for _ in range(TURNS):  # while the node holds on to what it promised to them
            nudge(site, board.name)
            time.sleep(1.0)
        assert "high" not in names(site, team)
        settle(site, team, board.name)
        wait_for(lambda: "high" in names(site, team), within=WITHIN)

        assert preempted(site, team) == expected
        assert names(site, team) == {"high", *there} - expected
