"""The pods that Volcano's guides show, under a kube-scheduler that asks us."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.ledger.decode import decode
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from tests.builders.model import A100_40, board, nodes_of
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.extender import WITHIN, asked
from tests.cluster.installation import GPU_NODES, Installation
from tests.cluster.scheduler import bound

SOFT = pod(
    container("cuda-container", {NUMBER: 1, CORES: 50, MEMORY: 3000}),
    annotations={MODE: "hami-core"},
)
HARD = pod(container("cuda-container", {NUMBER: 1, MEMORY: 3000}), annotations={MODE: "mig"})
FOUR = next(p.memory for p in board(A100_40).profiles if p.name == "4g.20gb")
TWO = pod(container("cuda-container", {NUMBER: 2, MEMORY: 3000, CORES: 50}))


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation of one node in each mode."""
    nodes = nodes_of(2, A100_40, mode=Mode.MIG, name="hard"), nodes_of(2, A100_40, name="soft")
    with asked(programs, tmp_path_factory.mktemp("guides"), *nodes) as found:
        yield found


def promised(site: Installation, node: str, team: str) -> list[Grant]:
    entries = decode(site.api.get(f"{GPU_NODES}/{node}")).entries
    return [
        grant
        for entry in entries
        if entry.namespace == team
        for held in entry.containers
        for grant in held.grants
    ]


@pytest.mark.parametrize(
    ("written", "promises"),
    [
        pytest.param(SOFT, {"soft": [(3000, 50)]}, id="hami-pod"),
        pytest.param(HARD, {"hard": [(4864, 0)]}, id="mig-pod"),
        # It names no mode: the scheduler may pick either node, and half of a GPU is a 4g there.
        pytest.param(TWO, {"soft": [(3000, 50)] * 2, "hard": [(FOUR, 50)] * 2}, id="gpu-pod1"),
    ],
)
def test_a_pod_of_the_guides_gets_what_it_was_promised(
    site: Installation, written: Json, promises: Mapping[str, list[tuple[int, int]]]
) -> None:
    """On a node in its mode, with the amounts it asked for or the instance that holds them."""
    team = site.namespace()

    site.create(team, written)

    wait_for(lambda: bound(site, team), within=WITHIN)
    found = site.api.get(f"/api/v1/namespaces/{team}/pods/p")
    node = found["spec"]["nodeName"]
    given = promised(site, node, team)
    assert [(grant.memory, grant.cores) for grant in given] == promises[node]
    assert len({grant.gpu for grant in given}) == len(given)
