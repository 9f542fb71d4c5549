"""What only our agents offer is noted once it has lasted, and nothing else ever is."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import orjson
import pytest

from allocator.catalog.keys import CAPACITY_KEY, SOLE_KEY
from allocator.catalog.vocabularies import GPUSHARE, VOCABULARIES, Vocabulary, configure_vocabulary
from allocator.cluster.objects import decode_node
from allocator.controllers.sole_capacity import (
    LASTING_SECONDS,
    SoleCapacityController,
    sole_resources,
)
from allocator.ledger.lifecycle import NodeIdentity
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import NotFoundError
from tests.fakes.api_client import FakeApiClient

MEM, SLOT = "aliyun.com/gpu-mem", "volcano.sh/vgpu-number"


def node(*offered: str, added: Iterable[str] = (), name: str = "n") -> NodeIdentity:
    return NodeIdentity(
        name=name, uid="", boot="", offered=frozenset(offered), added=frozenset(added)
    )


OURS = node(MEM, SLOT, "cpu.example.com/x", added=(MEM, SLOT), name="ours")
THEIRS = node(SLOT, "volcano.sh/vgpu-memory", name="theirs")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([], set(), id="no-nodes"),
        pytest.param([node()], set(), id="no-gpus"),
        pytest.param([OURS], {MEM, SLOT}, id="ours-alone"),
        pytest.param([OURS, THEIRS], {MEM}, id="a-plugin-on-another-node"),
        pytest.param([THEIRS], set(), id="theirs-alone"),
        pytest.param([node(added=(MEM,))], set(), id="noted-and-gone"),
        pytest.param([node(MEM, added=(SLOT,))], set(), id="noted-something-else"),
        pytest.param([OURS, node(MEM, name="new")], {SLOT}, id="a-node-without-a-note"),
        pytest.param([node("a.com/b", added=("a.com/b",))], set(), id="no-resource-of-ours"),
    ],
)
def test_what_is_ours_alone(nodes: list[NodeIdentity], expected: set[str]) -> None:
    """Offered by an agent of ours, and on no node by anybody else."""
    assert sole_resources(nodes, VOCABULARIES) == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"annotations": {CAPACITY_KEY: f"{MEM},{SLOT}"}}, {MEM}, id="noted"),
        pytest.param({"annotations": {CAPACITY_KEY: f"{SLOT},,"}}, set(), id="noted-another"),
        pytest.param({}, set(), id="no-note"),
    ],
)
def test_it_is_read_of_a_node(metadata: dict[str, Any], expected: set[str]) -> None:
    """Of a resource that is withdrawn nothing is offered, whoever noted it."""
    status = {"allocatable": {"cpu": "2", MEM: "80", SLOT: "0"}}
    written = {"metadata": {"name": "n", **metadata}, "status": status}

    read = decode_node(orjson.dumps(written)).identity()

    assert sole_resources([read], VOCABULARIES) == expected


def test_a_resource_is_known_by_the_name_that_the_cluster_gives_it() -> None:
    """And no longer by its old one."""
    renamed = configure_vocabulary(GPUSHARE, names={MEM: "example.com/mem"})
    nodes = [node("example.com/mem", MEM, added=("example.com/mem", MEM))]

    assert sole_resources(nodes, (renamed,)) == {"example.com/mem"}


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """An API server with our configuration, and the Nodes that a replica knows."""

    nodes: Mapping[str, NodeIdentity] | None
    annotations: dict[str, str] = field(default_factory=lambda: {"team": "theirs"})
    vocabularies: tuple[Vocabulary, ...] = VOCABULARIES
    upstream: bool = False
    installed: bool = True
    now: float = 100.0
    writes: int = 0
    controller: SoleCapacityController = field(init=False)

    def __post_init__(self) -> None:
        self.controller = SoleCapacityController(
            self,
            self,
            vocabularies=lambda: self.vocabularies,
            upstream=lambda: self.upstream,
            clock=Clock(monotonic=lambda: self.now),
        )

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        return self.nodes

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        assert path.endswith("/validatingwebhookconfigurations/vgpu-admission")
        if not self.installed:
            raise NotFoundError(404, "NotFound", path)
        metadata = {"annotations": self.annotations, "resourceVersion": "7"}
        return orjson.dumps({"metadata": metadata})

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        assert path.endswith("/validatingwebhookconfigurations/vgpu-admission")
        assert changes["metadata"]["resourceVersion"] == "7"
        self.writes += 1
        for key, value in changes["metadata"]["annotations"].items():
            if value is None:
                self.annotations.pop(key, None)
            else:
                self.annotations[key] = value
        return b"{}"

    def sweep(self, *, after: float = 0.0) -> str | None:
        """Sweep *after* seconds; return what is noted then."""
        self.now += after
        asyncio.run(self.controller.sweep())
        return self.annotations.get(SOLE_KEY)


def known(*nodes: NodeIdentity) -> dict[str, NodeIdentity]:
    return {node.name: node for node in nodes}


def test_it_is_noted_once_it_has_lasted() -> None:
    """In one order, beside what others wrote, and written once."""
    cluster = Cluster(known(OURS))

    assert cluster.sweep() is None
    assert cluster.sweep(after=LASTING_SECONDS - 1) is None
    assert cluster.sweep(after=1) == f"{MEM},{SLOT}"
    assert cluster.sweep(after=10) == f"{MEM},{SLOT}"
    assert (cluster.writes, cluster.annotations["team"]) == (1, "theirs")


def test_a_plugin_that_restarts_changes_nothing() -> None:
    """Its slots are gone for seconds, and ours show a moment before our note of them."""
    cluster = Cluster(known(OURS, THEIRS))
    cluster.sweep()
    cluster.sweep(after=LASTING_SECONDS)
    before, written = dict(cluster.annotations), cluster.writes

    cluster.nodes = known(OURS)
    cluster.sweep(after=10)
    cluster.nodes = known(OURS, THEIRS)
    cluster.sweep(after=10)
    cluster.sweep(after=LASTING_SECONDS)

    assert (cluster.annotations, cluster.writes) == (before, written)
    assert before[SOLE_KEY] == MEM


def test_another_plugin_that_comes_takes_its_resources_out() -> None:
    """Its pods in namespaces without the label are no longer ours to refuse."""
    cluster = Cluster(known(OURS), annotations={SOLE_KEY: f"{MEM},{SLOT}"})
    cluster.sweep()

    cluster.nodes = known(OURS, THEIRS)
    cluster.sweep(after=LASTING_SECONDS)

    assert cluster.sweep(after=LASTING_SECONDS) == MEM


@pytest.mark.parametrize(
    ("nodes", "upstream"),
    [
        pytest.param(known(OURS), True, id="upstream"),
        pytest.param({}, False, id="the-last-agent-left"),
    ],
)
def test_the_note_goes_when_nothing_is_ours_alone(
    nodes: Mapping[str, NodeIdentity], *, upstream: bool
) -> None:
    """Under another plugin, and after the agents."""
    cluster = Cluster(nodes, annotations={SOLE_KEY: MEM}, upstream=upstream)
    cluster.sweep()

    assert cluster.sweep(after=LASTING_SECONDS) is None
    assert cluster.annotations == {}


def test_a_new_leader_leaves_what_stands_until_it_knows() -> None:
    """Not every Node may be known yet."""
    cluster = Cluster(None, annotations={SOLE_KEY: MEM})

    assert cluster.sweep() == MEM
    assert cluster.sweep(after=1000) == MEM


def test_what_somebody_else_took_off_is_noted_again() -> None:
    """A replaced configuration has only what its manifest says."""
    cluster = Cluster(known(OURS))
    cluster.sweep()
    cluster.sweep(after=LASTING_SECONDS)
    cluster.annotations.clear()

    assert cluster.sweep(after=10) == f"{MEM},{SLOT}"


def test_nothing_is_written_where_nothing_is_installed() -> None:
    """An uninstallation ends."""
    cluster = Cluster(known(OURS), installed=False)
    cluster.sweep()

    assert cluster.sweep(after=LASTING_SECONDS) is None
    assert cluster.writes == 0
