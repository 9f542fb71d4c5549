"""Binds on nodes of HAMi's device plugin, whose stand-in finds on the API server what it reads."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.catalog.hami_keys import (
    ALLOCATED_KEY,
    LOCK_ANNOTATION,
    NODE_KEY,
    PHASE_KEY,
    REGISTER_ANNOTATION,
    TO_ALLOCATE_KEY,
)
from allocator.hami.register import encode_hami_register, registered_device
from manifests.generator.policies import PLUGINS
from tests.builders.model import T4, nodes_of
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.binds import bind, denied, promised
from tests.cluster.hami_site import annotation, calls_of, make, offer, serve_hami
from tests.cluster.installation import PODS, Installation, installation
from tests.harness.hami import HamiError, HamiPlugin

NODE = "gpu-1"
GPUS = nodes_of(2, T4, name=NODE).gpus
REGISTER = encode_hami_register(
    registered_device(gpu, count=10, memory=int(gpu.memory), cores=100, healthy=True)
    for gpu in GPUS
)


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation that leaves its nodes to HAMi's plugin."""
    with installation(programs, tmp_path_factory.mktemp("hami-plugin")) as found:
        serve_hami(found, "nodeAgent: hami\nvocabularies: [hami]")
        annotations = {REGISTER_ANNOTATION: REGISTER}
        found.api.create("/api/v1/nodes", {"metadata": {"name": NODE, "annotations": annotations}})
        offer(found, NODE, "20")
        wait_for(lambda: gpu_node(found).get("status", {}).get("inventory"))
        yield found


def gpu_node(site: Installation) -> Json:
    try:
        return site.api.get(f"/apis/vgpu-admission.io/v1alpha1/gpunodes/{NODE}")
    except ApiError:
        return {}


@pytest.fixture
def team(site: Installation) -> Iterator[str]:
    """Yield a namespace of its own; its pods and their lock go afterwards."""
    found = site.namespace()
    yield found
    site.api.delete(PODS.format(found), {"gracePeriodSeconds": 0})
    wait_for(lambda: not locked(site), within=30)


def metadata(site: Installation, team: str, name: str) -> Json:
    found: Json = site.api.get(f"{PODS.format(team)}/{name}")["metadata"]
    return found


def locked(site: Installation) -> str:
    return annotation(site, NODE, LOCK_ANNOTATION)


def plugin(site: Installation) -> HamiPlugin:
    return HamiPlugin(calls_of(site, PLUGINS[1]), NODE)


def test_its_register_is_the_inventory(site: Installation) -> None:
    """The GPUNode says whose it is."""
    status = gpu_node(site)["status"]

    assert status["driver"] == "hami"
    assert [gpu["uuid"] for gpu in status["gpus"]] == [gpu.uuid for gpu in GPUS]


def test_a_pod_is_served_as_its_entry_says(site: Installation, team: str) -> None:
    """What the plugin hands out is what was committed, and then the lock is free."""
    make(site, team, "p")

    bind(site, team, "p", node=NODE)

    (entry,) = promised(site, NODE)
    (grant,) = (g for held in entry.containers for g in held.grants)
    written = metadata(site, team, "p")
    assert written["annotations"][ALLOCATED_KEY] == f";{grant.gpu},NVIDIA,6000,0:;;"
    assert written["annotations"][PHASE_KEY] == "allocating"
    assert written["labels"][NODE_KEY] == NODE
    assert locked(site).endswith(f",{team},p")

    assert plugin(site).allocate(1) == [grant.gpu]

    served = metadata(site, team, "p")["annotations"]
    assert served[PHASE_KEY] == "success"
    assert served[TO_ALLOCATE_KEY] == ";;;"
    assert served[ALLOCATED_KEY] == written["annotations"][ALLOCATED_KEY]
    assert locked(site) == ""


def test_pods_start_one_after_the_other(site: Installation, team: str) -> None:
    """The second is refused until the first has its devices, and nothing is committed for it."""
    for name in ("p", "q"):
        make(site, team, name)
    bind(site, team, "p", node=NODE)

    status, message = denied(site, team, "q", node=NODE)
    assert status == 409
    assert "serves one pod at a time" in message
    assert len([e for e in promised(site, NODE) if e.namespace == team]) == 1

    plugin(site).allocate(1)
    bind(site, team, "q", node=NODE)
    plugin(site).allocate(1)
    assert metadata(site, team, "q")["annotations"][PHASE_KEY] == "success"


def test_a_binding_that_fails_after_the_hook_frees_the_node(site: Installation, team: str) -> None:
    """The leader releases the lock once the pod is not bound in time."""
    make(site, team, "p")
    # A dry run of ours that is none for the hook would be the like: here the lock alone is left.
    node = site.api.get(f"/api/v1/nodes/{NODE}")["metadata"]
    stamp = "2026-01-01T00:00:00Z"
    change = {"annotations": {LOCK_ANNOTATION: f"{stamp},{team},p"}}
    site.api.patch(f"/api/v1/nodes/{node['name']}", {"metadata": change})

    wait_for(lambda: not locked(site), within=20)


def test_a_deleted_pod_frees_the_node(site: Installation, team: str) -> None:
    """It was bound, and went before kubelet asked the plugin."""
    make(site, team, "p")
    bind(site, team, "p", node=NODE)
    site.api.delete(f"{PODS.format(team)}/p", {"gracePeriodSeconds": 0})

    wait_for(lambda: not locked(site), within=20)


def test_a_dry_run_locks_nothing(site: Installation, team: str) -> None:
    """And commits nothing."""
    make(site, team, "p")

    bind(site, team, "p", node=NODE, dryRun="All")

    assert locked(site) == ""
    assert not [e for e in promised(site, NODE) if e.namespace == team]


def test_a_wrong_count_fails_as_it_does_with_hamis_scheduler(site: Installation, team: str) -> None:
    """The stand-in gives up as the plugin does, and the lock is free again."""
    make(site, team, "p")
    bind(site, team, "p", node=NODE)

    with pytest.raises(HamiError, match="device number not matched"):
        plugin(site).allocate(2)

    assert metadata(site, team, "p")["annotations"][PHASE_KEY] == "failed"
    assert locked(site) == ""


def test_a_plugin_that_is_gone_closes_its_node(site: Installation, team: str) -> None:
    """Its register stays behind, and takes no pods."""
    make(site, team, "p")
    offer(site, NODE, "0")
    wait_for(lambda: not gpu_node(site).get("status", {}).get("inventory"), within=20)

    status, _ = denied(site, team, "p", node=NODE)
    assert status in {403, 409}

    offer(site, NODE, "20")
    wait_for(lambda: gpu_node(site).get("status", {}).get("inventory"), within=20)


def test_mig_beside_hami_is_refused_with_what_to_do(site: Installation, team: str) -> None:
    """The GPUNode and the refused bind say that HAMi owns the instances, until the mode is back."""
    make(site, team, "p")
    node = f"/api/v1/nodes/{NODE}"
    cut = REGISTER.replace('"hami-core"', '"mig"')
    site.api.patch(node, {"metadata": {"annotations": {REGISTER_ANNOTATION: cut}}})
    wait_for(lambda: gpu_node(site).get("status", {}).get("closed"), within=20)

    _, message = denied(site, team, "p", node=NODE)

    for text in (str(gpu_node(site)["status"]["closed"]), message):
        assert "its GPUs are in mode mig, in which only HAMi's scheduler can give them out" in text
        assert "set operatingmode hami-core for the node in HAMi's node configuration" in text
    site.api.patch(node, {"metadata": {"annotations": {REGISTER_ANNOTATION: REGISTER}}})
    wait_for(lambda: not gpu_node(site)["status"].get("closed"), within=20)
    bind(site, team, "p", node=NODE)
    plugin(site).allocate(1)
