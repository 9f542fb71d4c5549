"""What the control plane puts right by itself: pods bound past it, lost ledgers, nodes that go."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from allocator.ledger.decode import decode
from allocator.ledger.reclaim import SURPLUS_AGE
from allocator.ledger.schema import spec_of, status_of
from allocator.model.allocation import Entry
from allocator.model.request import Mode
from manifests.generator.names import CONTROL_PLANE
from tests.builders.gpunodes import entry
from tests.builders.model import A30, T4, nodes_of, soft_grant
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.bind_failure import bind_policy, binds_ignored
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.site import Who

OURS = "vgpu-admission.io/"
NODES = "/api/v1/nodes"
SOFT = nodes_of(1, T4, name="soft")


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with installation(programs, tmp_path_factory.mktemp("reconciler")) as found:
        found.add_node(nodes_of(1, A30, mode=Mode.MIG, name="cut"))
        found.add_node(SOFT)
        found.wait_for_models("A30", "T4")
        yield found


@pytest.fixture
def team(site: Installation) -> Iterator[str]:
    """Return a namespace that opted in; its pods and promises go with the test."""
    name = site.namespace()
    yield name
    site.api.delete(PODS.format(name), {"gracePeriodSeconds": 0})
    for node in ("cut", "soft"):
        report(site, node, observedGeneration=10**6, held=[], unpromised=[])
        wait_for(lambda node=node: not promised(site, node))  # type: ignore[misc]


def report(site: Installation, node: str, **status: object) -> None:
    """Write a GPUNode's status as its agent does."""
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    path = f"{GPU_NODES}/{node}/status"
    site.api.request("PATCH", path, {"status": status}, headers=headers)


def forget(site: Installation, node: str) -> None:
    """Lose what is promised on a node."""
    write_entries(site, node)


def promised(site: Installation, node: str) -> tuple[Entry, ...]:
    return decode(site.api.get(f"{GPU_NODES}/{node}")).entries


def make(site: Installation, team: str, name: str, *, memory: int = 6000, mode: str = "") -> Json:
    asking = container(limits={NUMBER: 1, MEMORY: memory})
    written = pod(asking, annotations={MODE: mode} if mode else None)
    return site.stored(team, written | {"metadata": {**written["metadata"], "name": name}})


def bind(site: Installation, team: str, name: str, *, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    site.api.create(f"{PODS.format(team)}/{name}/binding", body)


def bypass(site: Installation, team: str, name: str, *, node: str) -> None:
    """Bind a pod while its namespace has lost the label, so that nobody asks us."""
    path = f"/api/v1/namespaces/{team}"
    site.api.patch(path, {"metadata": {"labels": {f"{OURS}inject": None}}})
    wait_for(lambda: unasked(site, team))
    bind(site, team, name, node=node)


def unasked(site: Installation, team: str) -> bool:
    """Say whether a bind that we would deny passes: the API server has seen the label go."""
    probe = pod(container())
    named = {**probe, "metadata": {"generateName": "probe-"}}
    name = site.create(team, named).body["metadata"]["name"]
    body = {
        "metadata": {"name": name, "annotations": {f"{OURS}c0.visible": "x"}},
        "target": {"kind": "Node", "name": "nowhere"},
    }
    site.api.create(f"{PODS.format(team)}/{name}/binding", body)
    found = site.api.get(f"{PODS.format(team)}/{name}")
    return f"{OURS}c0.visible" in found["metadata"].get("annotations", {})


def annotations(site: Installation, team: str, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] = site.api.get(f"{PODS.format(team)}/{name}")["metadata"][
        "annotations"
    ]
    return found


def told(site: Installation, team: str, name: str) -> object:
    text = annotations(site, team, name).get(f"{OURS}assignment", "")
    return orjson.loads(text) if text else None


def notes(site: Installation, team: str, reason: str) -> list[str]:
    events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return [event["note"] for event in events if event["reason"] == reason]


def test_a_pod_bound_past_us_gets_its_entry_late(site: Installation, team: str) -> None:
    """It is promised and told as if it had come through the door."""
    uid = make(site, team, "p", mode="hami-core")["metadata"]["uid"]

    bypass(site, team, "p", node="soft")

    (entry,) = wait_for(lambda: promised(site, "soft"))
    wait_for(lambda: told(site, team, "p"))
    stored = site.api.get(f"{GPU_NODES}/soft")["spec"]["entries"][0]
    assert (entry.uid, entry.namespace, entry.pod) == (uid, team, "p")
    assert told(site, team, "p") == stored["containers"]
    assert annotations(site, team, "p")[f"{OURS}c0.visible"] == "GPU-soft-0"
    assert wait_for(lambda: notes(site, team, "VgpuAssigned"))


def test_a_pod_bound_past_us_to_a_full_node_hears_why(site: Installation, team: str) -> None:
    """It has no entry, so it does not start; once there is room, it has one."""
    make(site, team, "first", memory=10000, mode="hami-core")
    make(site, team, "late", memory=10000, mode="hami-core")
    bind(site, team, "first", node="soft")

    bypass(site, team, "late", node="soft")

    (note, *_) = wait_for(lambda: notes(site, team, "VgpuUnpromised"))
    assert 'so it does not start: node "soft": container "main"' in note
    assert [entry.pod for entry in promised(site, "soft")] == ["first"]
    site.api.delete(f"{PODS.format(team)}/first", {"gracePeriodSeconds": 0})
    report(site, "soft", observedGeneration=10**6)
    assert wait_for(lambda: [e.pod for e in promised(site, "soft")] == ["late"], within=30)


def test_of_entries_on_three_nodes_the_oldest_goes(site: Installation, team: str) -> None:
    """As after a bind that was answered 503 and written all the same; a pod keeps two at most."""
    for name in ("third", "fourth"):
        site.add_node(nodes_of(1, T4, name=name))
    uid = make(site, team, "p", mode="hami-core")["metadata"]["uid"]
    began = datetime.now(UTC).replace(microsecond=0)
    for seconds, node in ((-2, "third"), (-3, "soft"), (-1, "fourth")):
        one = replace(entry(uid, soft_grant(1000, gpu=f"GPU-{node}-0")), namespace=team, pod="p")
        write_entries(site, node, replace(one, since=began + timedelta(seconds=seconds)))

    wait_for(lambda: not promised(site, "soft"), within=30)

    assert datetime.now(UTC) - began >= SURPLUS_AGE - timedelta(seconds=3)
    assert [e.uid for node in ("third", "fourth") for e in promised(site, node)] == [uid, uid]


def write_entries(site: Installation, node: str, *entries: Entry) -> None:
    """Write a ledger past the hook."""
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    change: Json = {"spec": spec_of(entries)}
    site.api.request("PATCH", f"{GPU_NODES}/{node}", change, headers=headers)


def test_a_lost_ledger_is_rebuilt_as_the_agent_confirms_it(site: Installation, team: str) -> None:
    """What runs keeps its slots, and is in the way of others before its entry is back."""
    make(site, team, "p", mode="mig")
    bind(site, team, "p", node="cut")
    before = site.api.get(f"{GPU_NODES}/cut")["spec"]["entries"]

    # Where both are lost at once, and the agent speaks first, as it does after a restore.
    report(site, "cut", unpromised=before)
    forget(site, "cut")

    after = wait_for(lambda: site.api.get(f"{GPU_NODES}/cut")["spec"]["entries"])
    assert after[0]["containers"] == before[0]["containers"]
    assert wait_for(lambda: late(site) == "confirmed")


def late(site: Installation) -> str:
    """Return what the newest entry rests on, by its record."""
    late = [line for line in site.first.lines() if line.get("kind") == "late-commit"]
    return str(late[-1].get("basis")) if late else ""


def test_a_gpu_node_outlives_its_node_until_its_pods_are_gone(
    site: Installation, team: str
) -> None:
    """No commit there meanwhile; then nothing is left, and a Node of that name begins anew."""
    site.add_node(nodes_of(1, T4, name="brief"))
    make(site, team, "p", mode="hami-core")
    make(site, team, "q", mode="hami-core")
    wait_for(lambda: binds(site, team, "p", node="brief"))

    site.api.delete(f"{NODES}/brief")
    wait_for(lambda: "inventory" not in site.api.get(f"{GPU_NODES}/brief")["status"])
    with pytest.raises(ApiError, match="it is no longer a node of the cluster"):
        bind(site, team, "q", node="brief")
    time.sleep(2.5)  # at least one sweep
    assert [entry.pod for entry in promised(site, "brief")] == ["p"]

    site.api.delete(f"{PODS.format(team)}/p", {"gracePeriodSeconds": 0})
    assert wait_for(lambda: "brief" not in gpu_nodes(site))


def binds(site: Installation, team: str, name: str, *, node: str) -> bool:
    """Bind, or say that the node is not known yet, or that the API server still waits for us."""
    try:
        bind(site, team, name, node=node)
    except ApiError as error:
        if error.status not in {403, 409, 500}:
            raise
        return False
    return True


def gpu_nodes(site: Installation) -> list[str]:
    return [item["metadata"]["name"] for item in site.api.get(GPU_NODES)["items"]]


def test_a_node_that_is_back_takes_nothing_before_its_agent_speaks(
    site: Installation, team: str
) -> None:
    """After a reboot the agent has to account for what is live; until then binds are refused."""
    make(site, team, "p", mode="hami-core")
    report(site, "soft", bootID="boot-1")
    system = {**site.api.get(f"{NODES}/soft")["status"].get("nodeInfo", {}), "bootID": "boot-2"}
    site.api.patch(f"{NODES}/soft/status", {"status": {"nodeInfo": system}})

    wait_for(lambda: "inventory" not in site.api.get(f"{GPU_NODES}/soft")["status"])
    with pytest.raises(ApiError, match=r"but its Node is in the boot .*boot-2"):
        bind(site, team, "p", node="soft")

    report(site, "soft", bootID="boot-2", **status_of(SOFT))
    assert wait_for(lambda: binds(site, team, "p", node="soft"))


def test_an_agents_label_is_enough(site: Installation) -> None:
    """A Node that runs our agent gets its GPUNode before anything is known of its GPUs."""
    labels = {f"{OURS}agent": "0.1.0"}
    site.api.create(NODES, {"metadata": {"name": "labelled", "labels": labels}})

    assert wait_for(lambda: "labelled" in gpu_nodes(site))
    assert "inventory" not in site.api.get(f"{GPU_NODES}/labelled").get("status", {})


def test_binds_go_on_without_us_where_the_component_says_so(site: Installation, team: str) -> None:
    """What was bound meanwhile is committed late, and a replica leaves the policy as applied."""
    uid = make(site, team, "p", mode="hami-core")["metadata"]["uid"]

    with binds_ignored(site):
        site.first.process.kill()
        wait_for(lambda: binds(site, team, "p", node="soft"))
        assert f"{OURS}assignment" not in annotations(site, team, "p")
        site.first.start()

        assert wait_for(lambda: [e.uid for e in promised(site, "soft")] == [uid], within=30)
        assert bind_policy(site) == "Ignore"
