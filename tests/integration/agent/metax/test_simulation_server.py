"""A simulated MetaX node beside a kubelet: what it writes, when it serves, and how it leaves."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from agent.metax.machine import MetaxMachine
from agent.metax.plugin_server import VISIBLE
from agent.metax.simulation_server import MetaxPaths, MetaxSimulation
from agent.proto import deviceplugin_pb2 as pb
from allocator.catalog.keys import AGENT_LABEL, NOT_READY_TAINT, SIMULATED_LABEL
from allocator.metax.names import CARDS_KEY, GPU, MODEL_LABEL, SCORES_KEY, SGPU
from tests.fakes.api_rules import Json
from tests.fakes.kubelet import Kubelet
from tests.fakes.objects_client import ObjectsClient
from tests.integration.waiting import until
from tests.unit.agent.metax.test_machine import machine

NODE = "/api/v1/nodes/n"
SELECTED = {"vgpu-admission.io/node": "enabled"}


class Site:
    """A Node, its kubelet, and the simulation that runs there."""

    def __init__(self, folder: Path, found: MetaxMachine, **status: Json) -> None:
        self.client = ObjectsClient()
        self.client.put(NODE, {"metadata": {"labels": SELECTED}, "status": dict(status)})
        self.kubelet = Kubelet(folder, resource=found.resource)
        paths = MetaxPaths(kubelet=folder, state=folder / "state")
        self.simulation = MetaxSimulation(found, self.client, paths, node="n")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run kubelet and simulation while the block runs."""
        await self.kubelet.start()
        tasks = [
            asyncio.create_task(work)
            for work in (self.simulation.publish(), self.simulation.serve())
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.simulation.close()
            await self.kubelet.stop()

    async def change(self, **changes: Json) -> None:
        """Change the Node as somebody else does."""
        await self.client.merge_patch(NODE, changes)

    def marks(self, part: str) -> Json:
        """Return annotations or labels of the Node."""
        found: Json = self.client.read(NODE)["metadata"].get(part, {})
        return found


def run(act: Callable[[Site], Awaitable[None]], found: MetaxMachine, **status: Json) -> None:
    """Run *act* on a node where nothing runs yet."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
            await act(Site(Path(folder), found, **status))

    asyncio.run(main())


def test_a_shared_node_is_described_before_kubelet_has_its_shares() -> None:
    """So nobody finds shares of which no card is known; kubelet needs no PreStartContainer."""

    async def act(site: Site) -> None:
        async with site.running():
            await until(lambda: site.kubelet.allocatable == 32)
            assert CARDS_KEY in site.marks("annotations")
            assert site.kubelet.client.options == pb.DevicePluginOptions()
            assert site.kubelet.client.announced == pb.DevicePluginOptions()
            assert site.simulation.not_ready_reason() == ""

    run(act, machine())


def test_a_new_node_takes_pods_once_kubelet_has_its_gpus() -> None:
    """The taint that says that its agent is not ready goes; others stay."""
    taints = [{"key": "other"}, {"key": NOT_READY_TAINT}]

    async def act(site: Site) -> None:
        await site.change(spec={"taints": taints})
        site.kubelet.refusing = "not yet"
        async with site.running():
            await until(lambda: site.kubelet.refused)
            assert site.client.read(NODE)["spec"]["taints"] == taints
            site.kubelet.refusing = None
            await until(lambda: site.client.read(NODE)["spec"]["taints"] == taints[:1])

    run(act, machine())


def test_marks_that_somebody_removes_come_back() -> None:
    """As MetaX's components would write them again."""

    async def act(site: Site) -> None:
        async with site.running():
            await until(lambda: site.kubelet.allocatable)
            await site.change(metadata={"annotations": {CARDS_KEY: "[]"}})
            await until(lambda: site.marks("annotations")[CARDS_KEY] != "[]")

    run(act, machine())


def test_whole_gpus_in_use_are_worth_nothing_to_others() -> None:
    """The maps are those of the GPUs that no container has."""

    async def act(site: Site) -> None:
        async with site.running():
            await until(lambda: site.kubelet.allocatable == 7)
            assert site.marks("labels")[MODEL_LABEL] == "C500"
            assert '"7":' in site.marks("annotations")[SCORES_KEY]
            held = await site.kubelet.admit("uid", "p", count=2)
            assert held.answer.envs[VISIBLE] == ",".join(sorted(held.slots))
            await until(lambda: '"6":' not in site.marks("annotations")[SCORES_KEY])
            site.kubelet.forget("uid")
            await until(lambda: '"7":' in site.marks("annotations")[SCORES_KEY])

    run(act, machine(node="whole"))


def test_nothing_is_offered_while_kubelet_has_the_other_mode() -> None:
    """Shares and whole GPUs are the same GPUs."""

    async def act(site: Site) -> None:
        async with site.running():
            await until(lambda: "still offers" in site.simulation.not_ready_reason())
            assert site.simulation.not_ready_reason() == f"kubelet still offers {GPU}"
            assert (site.kubelet.registrations, site.marks("annotations")) == (0, {})
            await site.change(status={"allocatable": {GPU: "0", SGPU: "0"}})
            await until(lambda: site.kubelet.allocatable == 32)

    run(act, machine(), allocatable={GPU: "8"})


def test_a_node_of_another_agent_is_left_alone() -> None:
    """The control plane reads it as that agent's, so that one withdraws first."""

    async def act(site: Site) -> None:
        await site.change(metadata={"labels": {AGENT_LABEL: "0.1.0"}})
        async with site.running():
            await until(lambda: "withdraw first" in site.simulation.not_ready_reason())
            assert (site.kubelet.registrations, site.marks("annotations")) == (0, {})
            await site.change(metadata={"labels": {AGENT_LABEL: None}})
            await until(lambda: site.kubelet.allocatable == 32)

    run(act, machine())


def test_a_simulation_that_ends_leaves_marks_only_where_it_comes_back() -> None:
    """It removes them if the DaemonSet selects its Node no longer."""

    async def act(site: Site) -> None:
        async with site.running():
            await until(lambda: site.kubelet.allocatable)
        await site.simulation.depart()
        assert MODEL_LABEL in site.marks("labels")
        assert site.marks("labels")[SIMULATED_LABEL] == "true"

        await site.change(metadata={"labels": dict.fromkeys(SELECTED)})
        await site.simulation.depart()

        assert (site.marks("labels"), site.marks("annotations")) == ({}, {})

    run(act, machine(node="whole"))
