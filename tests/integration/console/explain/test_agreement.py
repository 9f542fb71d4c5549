"""One answer: what a person is told fits is what the hook promises and the extender lets through.

All three read the same objects from one server, each by its own code.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
import yaml

from allocator.cluster.inventory import Inventory
from allocator.config.manifest import pods_in
from allocator.extender.filter import FilterContext
from allocator.ledger.lifecycle import REGISTER_DRIVER
from allocator.model.gpu import Node
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.placement.choose import PlacementPolicy
from allocator.report.feasibility import FeasibilityVerdict
from allocator.volcano.register import REGISTER_ANNOTATION, encode_register
from console.cli.get import select_nodes
from console.cluster.cluster_client import ClusterTarget, connect
from console.cluster.pod import PodView, pod_of
from console.cluster.reader_client import ClusterReader
from console.cluster.snapshot import ClusterView
from console.explain.fit import fit
from console.explain.why import MOST_NODES, PodFacts, why
from console.get.gpu_rows import gpu_rows
from kube.client import Client
from kube.config import Access
from tests.builders.bindings import answered, binding, review
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.model import A30, A100_40, T4, nodes_of
from tests.builders.pods import MEMORY, MODE, NUMBER, admitted, container, pod, received
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.allocator.cluster.test_inventory import until
from tests.integration.console.sessions import GPU_NODES, NODES, kubeconfig, put
from tests.unit.console.sites import machine
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.scheduler_pod import unbound_pod
from webhook.serve.extender_verbs import Extender
from webhook.serve.view import view_of

SPACE = "team-a"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
TABLE = Path(__file__).parents[3] / "golden/volcano/device-config-a.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node, and what is on it already; ``listed`` says that Volcano's plugin registered it."""

    gpus: Node
    listed: bool = False
    holds: tuple[tuple[int, str], ...] = ()
    status: Mapping[str, str] = field(default_factory=dict)


def mig(name: str, product: str = A100_40, **more: object) -> Place:
    return Place(gpus=nodes_of(1, product, mode=Mode.MIG, name=name), **more)  # type: ignore[arg-type]


def soft(name: str, **more: object) -> Place:
    return Place(gpus=nodes_of(2, T4, name=name), **more)  # type: ignore[arg-type]


PLACES = (
    mig("listed-1g", listed=True, holds=((4000, "mig"),)),
    mig("own-1g", holds=((4000, "mig"),)),
    mig("listed-2g", listed=True, holds=((9000, "mig"),)),
    mig("listed-3g", listed=True, holds=((18000, "mig"),)),
    mig("a30-listed", A30, listed=True, holds=((5000, "mig"),)),
    mig("a30-own", A30, holds=((5000, "mig"),)),
    mig("full", A30, listed=True, holds=((20000, "mig"),)),
    soft("soft-listed", listed=True, holds=((9000, "hami-core"),)),
    soft("soft-own", holds=((9000, "hami-core"), (14000, "hami-core"))),
    soft("booted", status={"bootID": "boot-0"}),
    soft("register", listed=True, status={"driver": REGISTER_DRIVER}),
)
ASKS = [
    (memory, count, mode)
    for memory in (3000, 5000, 9000, 11000, 18000, 22000, 39000)
    for count, mode in ((1, "mig"), (1, "hami-core"), (1, ""), (2, "hami-core"))
]
NAMES = [place.gpus.name for place in PLACES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Which nodes take a pod, as each says; ``fits`` is what `fit` says of all of them."""

    hook: frozenset[str]
    extender: frozenset[str]
    why: frozenset[str]
    alone: frozenset[str]
    fits: bool


def asking(memory: int, count: int, mode: str) -> Json:
    limits = {NUMBER: count, MEMORY: memory}
    return pod(container(limits=limits), annotations={MODE: mode} if mode else None)


@cache
def answers() -> tuple[Mapping[tuple[int, int, str], Answers], Mapping[str, int | None]]:
    """Return what everybody says of every ask, and what `get` says each node still takes."""

    async def play() -> tuple[Mapping[tuple[int, int, str], Answers], Mapping[str, int | None]]:
        with TemporaryDirectory() as folder:
            async with ApiServer() as server, Client(Access(url=server.url)) as client:
                install(server)
                inventory = Inventory(client, namespace="vgpu-admission-system")
                following = asyncio.create_task(inventory.run())
                try:
                    await until(lambda: inventory.synced)
                    cluster = Everyone(server, client, inventory)
                    await cluster.filled()
                    target = ClusterTarget(kubeconfig=kubeconfig(Path(folder), server.url))
                    async with connect(target) as read:
                        site = await ClusterReader(read, "vgpu-admission-system", print).site()
                    left = {row.name: row.fits_mib for row in gpu_rows(site)}
                    return {ask: await cluster.answers(ask, site) for ask in ASKS}, left
                finally:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)

    return asyncio.run(play())


def install(server: ApiServer) -> None:
    """Put the nodes there, and the table that Volcano's plugin was given."""
    for place in PLACES:
        name = place.gpus.name
        found = machine(name)
        found["status"]["nodeInfo"] = {"bootID": "boot-1"}
        if place.listed:
            found["metadata"]["annotations"] = {
                REGISTER_ANNOTATION: encode_register(place.gpus.gpus)
            }
        put(server, NODES, found)
        put(server, GPU_NODES, gpu_node(place.gpus, (), **place.status))
    put(
        server,
        "/api/v1/namespaces/kube-system/configmaps",
        {
            "metadata": {"name": "volcano-vgpu-device-config"},
            "data": {"device-config.yaml": TABLE.read_text()},
        },
    )


class Everyone:
    """The hook and the extender on one inventory, and the console beside them."""

    def __init__(self, server: ApiServer, client: Client, inventory: Inventory) -> None:
        self._server = server
        self._inventory = inventory
        self._binder = BindingHandler(
            calls=client,
            context_of=self._around,
            nodes_with_entry=inventory.nodes_with_entry,
            is_current=inventory.is_current,
        )
        self._extender = Extender(
            index=inventory.index,
            read_pod=lambda raw: unbound_pod(raw, inventory.vocabularies),
            settings=lambda: inventory.settings,
            context_of=lambda _: FilterContext(
                policy=PlacementPolicy(geometries=inventory.device_config.geometries)
            ),
        )

    def _around(self, namespace: str) -> AdmissionContext:
        return view_of(self._inventory, namespace).context

    def _stored(self, name: str, written: Json) -> Json:
        found = admitted(received(written), self._around(SPACE))
        found["metadata"]["name"] = name
        put(self._server, PODS, found)
        kept: Json = self._server.objects.read(parsed(f"{PODS}/{name}"))
        return kept

    async def _bound(self, stored: Json, node: str, *, dry: bool) -> bool:
        metadata = {key: stored["metadata"][key] for key in ("name", "uid")}
        written = {**binding(node=node), "metadata": metadata}
        asked = review(written, name=metadata["name"], dryRun=dry)
        return bool(answered(await self._binder.bind(asked))["allowed"])

    async def filled(self) -> None:
        """Bind what is there already through the hook, and wait until everybody has heard of it."""
        for place in PLACES:
            for number, (memory, mode) in enumerate(place.holds):
                name = f"{place.gpus.name}-{number}"
                stored = self._stored(name, asking(memory, 1, mode))
                assert await self._bound(stored, place.gpus.name, dry=False)
                await until(partial(self._inventory.nodes_with_entry, stored["metadata"]["uid"]))

    async def answers(self, ask: tuple[int, int, str], site: ClusterView) -> Answers:
        """Ask everybody about one pod, and every node."""
        written = asking(*ask)
        stored = self._stored("-".join(["ask", *map(str, ask)]).strip("-"), written)
        pod_why = why(PodFacts(pod=pod_of(stored), site=site))
        question = {"Pod": stored, "Nodes": None, "NodeNames": NAMES}
        passed = json.loads(self._extender.filter(orjson.dumps(question)))["NodeNames"]
        hook = [name for name in NAMES if await self._bound(stored, name, dry=True)]
        return Answers(
            hook=frozenset(hook),
            extender=frozenset(passed),
            why=frozenset(
                a.node for a in pod_why.answers if not a.closed_reason and a.finding is None
            ),
            alone=frozenset(n for n in NAMES if fits(written, select_nodes(site, None, [n]))),
            fits=fits(written, site),
        )


def fits(written: Json, site: ClusterView) -> bool:
    made = pods_in(yaml.safe_dump(written), PodView, namespace=SPACE)
    assert isinstance(made, Loaded)
    return fit(made.value[0], site).verdict is FeasibilityVerdict.FITS


@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_the_console_says_what_the_hook_would_do(ask: tuple[int, int, str]) -> None:
    """Of every node, whether its places are those that Volcano's scheduler can name or all."""
    assert len(NAMES) <= MOST_NODES  # `why` tells of every one
    found = answers()[0][ask]

    assert found.why == found.hook == found.extender
    assert found.alone == found.hook
    assert found.fits == bool(found.hook)


def test_lists_show_the_largest_request_that_the_hook_would_promise() -> None:
    """On a node that is listed, less may fit than on its twin that is not."""
    left = answers()[1]

    assert {name: left[f"{name}/0"] for name in ("listed-1g", "own-1g", "booted", "register")} == {
        "listed-1g": 4864,
        "own-1g": 19968,
        "booted": None,
        "register": None,
    }
