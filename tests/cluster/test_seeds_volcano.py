"""Every manifest of Volcano's guides, unchanged: real API server, scheduler and controllers."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.model.request import Mode
from tests.builders.model import A100_40, T4, nodes_of
from tests.cluster.api import Json, wait_for
from tests.cluster.guides import Reader, documents, scheduler_configuration
from tests.cluster.installation import PODS
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.volcano_site import ROOM, SERVED_WITHIN, Rig, volcano_site

DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
NODES = "/api/v1/nodes"
SOFT = "aio-node67"  # the node that the practice guide configures
HARD = "hard"


@pytest.fixture(scope="module")
def practice(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """Yield a site whose vc-scheduler is configured as both guides with priorities have it."""
    folder = tmp_path_factory.mktemp("practice")
    words = scheduler_configuration("practice-scheduler.yaml")
    with volcano_site(programs, folder, scheduler=words) as found:
        found.serve(nodes_of(2, T4, name=SOFT), ROOM | {"cpu": "6"})
        yield found


@pytest.fixture(scope="module")
def plain(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Yield a site whose vc-scheduler has the two plugins of Volcano's own guide."""
    folder = tmp_path_factory.mktemp("plain")
    words = scheduler_configuration("volcano-scheduler.yaml")
    with volcano_site(programs, folder, scheduler=words) as found:
        found.serve(nodes_of(1, T4, name=SOFT))
        found.serve(nodes_of(1, A100_40, mode=Mode.MIG, name=HARD))
        yield found


def granted(rig: Rig, team: str, pod: str) -> list[tuple[str, int, int]]:
    """Return mode, MiB and cores of each GPU of a pod, once it runs."""
    path = f"{PODS.format(team)}/{pod}"

    wait_for(lambda: rig.site.api.get(path)["status"]["phase"] == "Running", within=SERVED_WITHIN)
    found: Json = rig.site.api.get(path)
    entries = rig.ledger(found["spec"]["nodeName"])
    (entry,) = (one for one in entries if one.uid == found["metadata"]["uid"])
    return [(g.mode, g.memory, g.cores) for one in entry.containers for g in one.grants]


@pytest.mark.parametrize(
    ("manifest", "pod", "grants"),
    [
        ("volcano-hami-core-pod.yaml", "hami-pod", [("hami-core", 3000, 50)]),
        ("volcano-mig-pod.yaml", "mig-pod", [("mig", 4864, 0)]),
    ],
)
def test_a_pod_of_volcanos_guide_runs(
    plain: Rig,
    programs: Mapping[str, Path],
    manifest: str,
    *,
    pod: str,
    grants: list[tuple[str, int, int]],
) -> None:
    """With the share that it asks for; a MIG instance is the smallest that has it."""
    team = plain.site.namespace()
    Reader(programs["kubectl"], plain.site).create(manifest, team)

    assert granted(plain, team, pod) == grants


@pytest.mark.parametrize(
    ("manifest", "pod", "grants"),
    [
        ("practice-pod.yaml", "gpu-pod", [("hami-core", 1000, 10)]),
        ("volcano-two-gpus-pod.yaml", "gpu-pod1", [("hami-core", 3000, 50)] * 2),
    ],
)
def test_a_pod_of_the_practice_guide_runs(
    practice: Rig,
    programs: Mapping[str, Path],
    manifest: str,
    *,
    pod: str,
    grants: list[tuple[str, int, int]],
) -> None:
    """Beside the configuration of nodes and models that its guide applies first."""
    team = practice.site.namespace()
    Reader(programs["kubectl"], practice.site).create("practice-configuration.yaml")
    Reader(programs["kubectl"], practice.site).create(manifest, team)

    assert granted(practice, team, pod) == grants


def test_the_jobs_of_the_practice_guide_run_by_priority(
    practice: Rig, programs: Mapping[str, Path]
) -> None:
    """The high one first; when it is deleted the medium one, while the low one waits."""
    team = practice.site.namespace()
    Reader(programs["kubectl"], practice.site).create("practice-priority-classes.yaml")
    Reader(programs["kubectl"], practice.site).create("practice-jobs.yaml", team)
    waiting = {"priority-med": "Pending", "priority-low": "Pending"}
    first = {"priority-high": "Running", **waiting}
    wait_for(lambda: practice.jobs(team) == first, within=SERVED_WITHIN)

    practice.delete_job(team, "priority-high")

    then = {"priority-med": "Running", "priority-low": "Pending"}
    wait_for(lambda: practice.jobs(team) == then, within=SERVED_WITHIN)


def test_the_device_plugin_of_the_practice_guide_runs_with_its_label_in_quotes(
    practice: Rig, programs: Mapping[str, Path]
) -> None:
    """YAML reads its ``on`` as true, which the API server refuses; all else stays as it is."""
    reader = Reader(programs["kubectl"], practice.site)
    practice.serve_upstream("theirs", "GPU-7,10,15360,100,NVIDIA-Tesla T4,0,true,hami-core:")
    practice.site.api.patch(f"{NODES}/theirs", {"metadata": {"labels": {"gpu": "on"}}})
    refused = reader.apply("practice-device-plugin.yaml")
    *rest, daemon_set = documents("practice-device-plugin.yaml")
    affinity = daemon_set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    term["matchExpressions"][0]["values"] = ["on"]
    reader.create([*rest, daemon_set])

    def ready() -> bool:
        status = practice.site.api.get(f"{DAEMON_SETS}/volcano-device-plugin").get("status", {})
        return bool(status.get("numberReady") == status.get("desiredNumberScheduled") == 1)

    assert "cannot unmarshal bool" in refused.stderr
    scheduler = kube_scheduler(programs["kube-scheduler"], practice.site.plane)
    try:
        wait_for(ready, within=SERVED_WITHIN)
    finally:
        scheduler.stop()
    pods = practice.site.api.get(PODS.format("kube-system"))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"theirs"}
