"""A real scheduler that knows nothing of us: what it binds is promised, or it hears why not."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.ledger.decode import decode
from allocator.model.request import Mode
from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import A30, nodes_of
from tests.cluster.api import MERGE, wait_for
from tests.cluster.installation import (
    GPU_NODES,
    PODS,
    Installation,
    installation,
)
from tests.cluster.scheduler import bound, half, kube_scheduler, refusals, schedulable
from tests.cluster.site import Who

BACKOFF = 15.0  # seconds; the scheduler's own is 10 at most


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with one GPU to cut and a plain kube-scheduler."""
    folder = tmp_path_factory.mktemp("schedulers")
    with installation(programs, folder) as found:
        found.add_node(nodes_of(1, A30, mode=Mode.MIG, name="cut"))
        found.wait_for_models("A30")
        schedulable(found, "cut")
        scheduler = kube_scheduler(programs["kube-scheduler"], found.plane)
        yield found
        scheduler.stop()


def test_a_plain_scheduler_is_enough(site: Installation) -> None:
    """Three pods that the node's sums would admit: two get a half each, one waits for its turn."""
    team = site.namespace()
    for name in ("a", "b", "c"):
        site.create(team, half(name))

    wait_for(lambda: len(bound(site, team)) == 2, within=BACKOFF)
    texts = wait_for(lambda: refusals(site, team), within=BACKOFF)
    first = bound(site, team)
    ledger = decode(site.api.get(f"{GPU_NODES}/cut"))

    masks = [grant.placed.mask for grant in ledger.node.gpus[0].grants if grant.placed]
    assert sorted(masks) == [0b0011, 0b1100]
    assert all('denied the request: node "cut": container "main"' in text for text in texts)

    leaving = min(first)
    site.api.delete(f"{PODS.format(team)}/{leaving}", {"gracePeriodSeconds": 0})
    generation = site.api.get(f"{GPU_NODES}/cut")["metadata"]["generation"]
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    seen = {"status": {"observedGeneration": generation}}
    site.api.request("PATCH", f"{GPU_NODES}/cut/status", seen, headers=headers)

    (waiting,) = {"a", "b", "c"} - first
    assert wait_for(lambda: waiting in bound(site, team), within=2 * BACKOFF)
