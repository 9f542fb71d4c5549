"""What MetaX's guide has for Volcano, unchanged: its jobs, and its schedulers' configurations."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.builders.supernodes import Boxes
from tests.cluster.api import wait_for
from tests.cluster.guides import Reader, documents, scheduler_configuration
from tests.cluster.supernode_site import SupernodeRig, supernode_site

BOXES: Boxes = {
    "sb-full": {"df-a": ("a1", "a2")},
    "sb-free": {"df-b": ("b1", "b2", "b3", "b4"), "df-c": ("c1", "c2", "c3", "c4")},
}
WITHIN = 60.0
# Their plugins are MetaX's own, and in no release of Volcano.
ABSENT = {
    "metax-scheduler.yaml": "gpu-aware",
    "metax-supernode-scheduler.yaml": "gpu-podaffinity",
}


@pytest.fixture(scope="module", params=ABSENT)
def guide(
    request: pytest.FixtureRequest,
    programs: Mapping[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, SupernodeRig]]:
    """Yield a configuration's manifest, and a site whose vc-scheduler has it."""
    name = str(request.param)
    folder = tmp_path_factory.mktemp("guide")
    configuration = scheduler_configuration(name)
    with supernode_site(programs, folder, BOXES, scheduler=configuration) as site:
        yield name, site


def test_the_job_of_the_guide_runs(
    guide: tuple[str, SupernodeRig], programs: Mapping[str, Path]
) -> None:
    """Each of its pods has two GPUs of its own, whether MetaX's plugin is there or not."""
    name, site = guide
    team = site.site.namespace()

    Reader(programs["kubectl"], site.site).create("metax-job.yaml", team)

    nodes = site.wait_for_nodes(team, "job-demo-", 2, within=WITHIN)
    ledgers = [entry for node in set(nodes.values()) for entry in site.rig.ledger(node)]
    gpus = [
        grant.gpu
        for entry in ledgers
        for container in entry.containers
        for grant in container.grants
    ]
    assert len(gpus) == len(set(gpus)) == 4
    wait_for(lambda: site.rig.jobs(team).get("job-demo") == "Running", within=WITHIN)
    assert f"Failed to get plugin {ABSENT[name]}" in site.rig.volcano.scheduler.tail(100_000)
    site.clear(team)


def test_the_pytorch_job_stays_together_without_a_plugin(
    guide: tuple[str, SupernodeRig], programs: Mapping[str, Path]
) -> None:
    """Neither MetaX's plugin nor Volcano's own is there; binds outside the domain are refused."""
    _, site = guide
    team = site.site.namespace()

    Reader(programs["kubectl"], site.site).create("metax-supernode-job.yaml", team)

    nodes = site.wait_for_nodes(team, "pytorch-demo-", 8, within=WITHIN)
    assert {node[0] for node in nodes.values()} == {"b", "c"}
    site.clear(team)


def test_the_configuration_is_no_manifest_until_it_is_completed(
    guide: tuple[str, SupernodeRig], programs: Mapping[str, Path]
) -> None:
    """Kubectl misses its kind and its name; with both the API server takes it."""
    name, site = guide
    reader = Reader(programs["kubectl"], site.site)
    (document,) = documents(name)

    refused = reader.apply(name)
    reader.create(
        [
            {
                **document,
                "kind": "ConfigMap",
                "metadata": {
                    "name": "volcano-scheduler-configmap",
                    "namespace": "volcano-system",
                },
            }
        ]
    )

    assert refused.returncode != 0
    assert "kind" in refused.stderr
