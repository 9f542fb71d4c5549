"""MetaX nodes on a real API server and scheduler: from the pod to what MetaX's plugin reads."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.ledger.decode import decode
from allocator.metax.names import ALLOCATED_KEY, CARDS_KEY
from tests.builders.pods import container, pod
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.extender import WITHIN, add_extender, apply, extender
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.site import MANIFESTS

GPU, SGPU = "metax-tech.com/gpu", "metax-tech.com/sgpu"
VCORE, VMEMORY = "metax-tech.com/vcore", "metax-tech.com/vmemory"
NODES = "/api/v1/nodes"
CARD = {"model": "C500", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536}
CARDS = [CARD | {"uuid": f"GPU-{name}", "healthy": True, "linkZone": 1} for name in "ab"]


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield a cluster with a native and a shared node, whose scheduler asks as the overlay says."""
    overlay = MANIFESTS / "overlays" / "kube-scheduler" / "configuration.yaml"
    (written,) = yaml.safe_load(overlay.read_text())["extenders"]
    with installation(programs, tmp_path_factory.mktemp("metax")) as found:
        add_node(found, "native", amounts={GPU: "8"})
        add_node(found, "shared", amounts={SGPU: "32"}, cards=CARDS)
        apply(found, "rbac.yaml")
        asked = extender(add_extender(found)[1], managedResources=written["managedResources"])
        for name in ("native", "shared"):
            wait_for(lambda name=name: found.gpu_node_status(name).get("inventory"))  # type: ignore[misc]
        scheduler = kube_scheduler(programs["kube-scheduler"], found.plane, extenders=[asked])
        yield found
        scheduler.stop()


def add_node(
    site: Installation, name: str, *, amounts: Json, cards: list[Json] | None = None
) -> None:
    """Do what MetaX's components and a kubelet do on a node."""
    notes = {} if cards is None else {CARDS_KEY: json.dumps(cards)}
    site.api.create(NODES, {"metadata": {"name": name, "annotations": notes}})
    site.api.patch(f"{NODES}/{name}", {"spec": {"taints": []}})
    offer(site, name, amounts)


def offer(site: Installation, name: str, amounts: Json) -> None:
    """Report what kubelet has to give."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", **amounts}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    report = {"capacity": room, "allocatable": room, "conditions": [ready]}
    site.api.patch(f"{NODES}/{name}/status", {"status": report})


def lock(site: Installation, name: str = "shared") -> str:
    """Return the lock of a node; empty while nobody holds it."""
    notes = site.api.get(f"{NODES}/{name}")["metadata"].get("annotations", {})
    return str(notes.get(LOCK_ANNOTATION, ""))


def allocate(site: Installation, name: str = "shared") -> None:
    """Do what MetaX's plugin does at the end of Allocate: it deletes the lock."""
    site.api.patch(f"{NODES}/{name}", {"metadata": {"annotations": {LOCK_ANNOTATION: None}}})


def create(site: Installation, team: str, name: str, *, limits: Json) -> None:
    """Create a pod."""
    written = pod(container(limits=limits))
    site.create(team, written | {"metadata": {**written["metadata"], "name": name}})


def bound(site: Installation, team: str, name: str) -> Json:
    """Return a pod once the scheduler has bound it; nothing until then."""
    found: Json = site.api.get(f"{PODS.format(team)}/{name}")
    return found if found["spec"].get("nodeName") else {}


def test_the_leader_keeps_a_gpu_node_for_each(site: Installation) -> None:
    """From what MetaX's components publish, without an agent of ours."""
    shared, native = (decode(site.api.get(f"{GPU_NODES}/{n}")) for n in ("shared", "native"))

    assert site.gpu_node_status("shared")["driver"] == "metax"
    assert [(g.uuid, g.mode, g.memory, g.slots) for g in shared.node.gpus] == [
        ("GPU-a", "sgpu", 65536, 16),
        ("GPU-b", "sgpu", 65536, 16),
    ]
    assert [g.uuid for g in native.node.gpus] == [f"native-metax-{i}" for i in range(8)]


def test_shares_start_one_after_another(site: Installation) -> None:
    """The pod of MetaX's guide holds the lock until the plugin has served it; then the next may.

    Its resources vcore and vmemory are in no node's allocatable, and it is scheduled all the same.
    """
    team = site.namespace()
    create(site, team, "first", limits={SGPU: 1, VCORE: 60, VMEMORY: 4})
    first = wait_for(lambda: bound(site, team, "first"), within=WITHIN)

    notes = first["metadata"]["annotations"]
    (((device,),),) = (json.loads(notes[ALLOCATED_KEY]),)
    assert first["spec"]["nodeName"] == "shared"
    assert (device["compute"], device["vRam"]) == (60, 4096)
    assert notes["hami.io/metax-sgpu-devices-to-allocate"] == (
        f"{device['uuid']},Metax-SGPU,4096,60:;"
    )
    assert lock(site).endswith(f",{team},first")

    create(site, team, "second", limits={SGPU: 1, VCORE: 30, VMEMORY: "512Mi"})
    refused = wait_for(
        lambda: [n for n in told(site, team) if "serves one pod at a time" in n], within=WITHIN
    )
    assert refused
    assert not bound(site, team, "second")
    allocate(site)

    second = wait_for(lambda: bound(site, team, "second"), within=WITHIN)
    assert lock(site).endswith(f",{team},second")
    assert json.loads(second["metadata"]["annotations"][ALLOCATED_KEY])[0][0]["vRam"] == 512
    assert {entry.pod for entry in decode(site.api.get(f"{GPU_NODES}/shared")).entries} == {
        "first",
        "second",
    }
    clear(site, team)


def told(site: Installation, team: str) -> list[str]:
    """Return what the scheduler told people."""
    events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return [event.get("note", "") for event in events]


def clear(site: Installation, team: str) -> None:
    """Delete all pods, and wait until their entries and locks are gone."""
    site.api.delete(PODS.format(team), {"gracePeriodSeconds": 0})
    for name in ("native", "shared"):
        wait_for(
            lambda name=name: not decode(site.api.get(f"{GPU_NODES}/{name}")).entries,  # type: ignore[misc]
            within=WITHIN,
        )
    wait_for(lambda: not lock(site), within=WITHIN)


def test_whole_gpus_need_no_lock(site: Installation) -> None:
    """MetaX's plugin chooses them by itself, so two pods may start at once."""
    team = site.namespace()
    for name in ("one", "two"):
        create(site, team, name, limits={GPU: 4})

    pods = [
        wait_for(lambda n=n: bound(site, team, n), within=WITHIN)  # type: ignore[misc]
        for n in ("one", "two")
    ]

    assert {found["spec"]["nodeName"] for found in pods} == {"native"}
    assert not lock(site, "native")
    held = decode(site.api.get(f"{GPU_NODES}/native")).entries
    uuids = [g.gpu for entry in held for c in entry.containers for g in c.grants]
    assert sorted(uuids) == [f"native-metax-{i}" for i in range(8)]
    clear(site, team)


def test_a_pod_that_waits_hears_why(site: Installation) -> None:
    """No single GPU has so much left, and the extender says so before anybody binds."""
    team = site.namespace()
    create(site, team, "large", limits={SGPU: 1, VCORE: 10, VMEMORY: 60})
    wait_for(lambda: bound(site, team, "large"), within=WITHIN)
    allocate(site)
    create(site, team, "other", limits={SGPU: 1, VCORE: 10, VMEMORY: 60})
    wait_for(lambda: bound(site, team, "other"), within=WITHIN)
    allocate(site)

    create(site, team, "late", limits={SGPU: 1, VCORE: 10, VMEMORY: 60})

    texts = wait_for(
        lambda: [n for n in told(site, team) if "insufficient GPU memory" in n], within=WITHIN
    )
    assert texts
    clear(site, team)


@pytest.mark.parametrize(
    ("limits", "notes", "expected"),
    [
        ({SGPU: 1, VMEMORY: "2M"}, {}, 'vmemory "2M" would mean 2000000 GiB'),
        ({SGPU: 1, VCORE: 140}, {}, "vcore 140 is more than one whole GPU"),
        ({SGPU: 2}, {"metax-tech.com/sgpu-app-class": "online"}, "goes with one GPU"),
        ({SGPU: 1}, {"metax-tech.com/sgpu-qos-policy": "most"}, '"most" is not a policy'),
        ({SGPU: 1}, {ALLOCATED_KEY: "[[]]"}, "is reserved"),
        ({SGPU: 1, GPU: 1}, {}, "both"),
    ],
)
def test_a_user_reads_what_is_wrong(
    site: Installation, *, limits: Json, notes: Json, expected: str
) -> None:
    """In MetaX's names, from the API server."""
    written = pod(container(limits=limits), annotations=notes or None)

    assert expected in site.refusal(site.namespace(), written)


def test_nobody_else_writes_what_the_plugin_reads(site: Installation) -> None:
    """Between the bind and Allocate a tenant could name another GPU, or more of it."""
    team = site.namespace()
    create(site, team, "mine", limits={SGPU: 1, VCORE: 10, VMEMORY: 1})
    wait_for(lambda: bound(site, team, "mine"), within=WITHIN)
    change = {"metadata": {"annotations": {ALLOCATED_KEY: '[[{"uuid":"GPU-a"}]]'}}}

    with pytest.raises(ApiError, match="is an allocation"):
        site.api.request(
            "PATCH",
            f"{PODS.format(team)}/mine",
            change,
            headers={"Content-Type": MERGE, "Impersonate-User": "tenant", **MASTERS},
        )
    clear(site, team)


MASTERS = {"Impersonate-Group": "system:masters"}


def test_a_node_closes_until_it_has_the_mode_of_its_operator(site: Installation) -> None:
    """MetaX's ConfigMap says what it is to become."""
    site.api.create("/api/v1/namespaces", {"metadata": {"name": "metax-operator"}})
    maps = "/api/v1/namespaces/metax-operator/configmaps"
    data = {"version": "v1", "nodes-config": "- {nodeName: shared, mode: sgpu}"}
    site.api.create(
        maps, {"metadata": {"name": "metax-device-config"}, "data": data | {"cluster-config": ""}}
    )
    changed = {"data": {"nodes-config": "- {nodeName: shared, mode: native}"}}
    site.api.patch(f"{maps}/metax-device-config", changed)

    why = str(wait_for(lambda: site.gpu_node_status("shared").get("closed"), within=WITHIN))
    assert "sets its mode to native, but it still offers metax-tech.com/sgpu" in why
    site.api.delete(f"{maps}/metax-device-config")
    assert wait_for(lambda: site.gpu_node_status("shared").get("gpus"), within=WITHIN)


def test_a_node_that_offers_both_modes_is_closed(site: Installation) -> None:
    """Until one of them is withdrawn."""
    offer(site, "shared", {SGPU: "32", GPU: "2"})
    why = str(wait_for(lambda: site.gpu_node_status("shared").get("closed"), within=WITHIN))

    assert "offers both metax-tech.com/gpu and metax-tech.com/sgpu" in why
    offer(site, "shared", {SGPU: "32", GPU: "0"})
    assert wait_for(lambda: site.gpu_node_status("shared").get("gpus"), within=WITHIN)
    assert not site.gpu_node_status("shared").get("closed")
