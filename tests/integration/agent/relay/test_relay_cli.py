"""The relay as a program: what it does when its agent dies, leaves, or serves something else."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.relay.relay_cli import RelayOptions, RelayTasks
from kube.client import Client
from kube.config import Access
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.fakes.kubelet import Kubelet
from tests.integration.agent.clusterside import GPU_NODES
from tests.integration.agent.starting import Site, site
from tests.integration.waiting import until

SOON = 5.0  # seconds


@dataclass(slots=True, kw_only=True)
class Scene:
    """A relay between a kubelet and an agent that has registered, and an API server."""

    tasks: RelayTasks
    kubelet: Kubelet
    server: ApiServer
    agent: Site
    agent_runs: asyncio.Task[None]
    registration: asyncio.Task[None]

    def is_open(self) -> bool:
        """Say whether binds to the node pass."""
        return "inventory" in self.server.objects.read(parsed(f"{GPU_NODES}/n"))["status"]

    async def end_agent(self) -> None:
        self.agent_runs.cancel()
        await asyncio.wait([self.agent_runs])


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Run all of them while the block runs."""
    with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
        root = Path(folder)
        kubelet = Kubelet(root / "kubelet")
        kubelet.folder.mkdir()
        await kubelet.start()
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            server.objects.create(
                parsed(GPU_NODES),
                {"metadata": {"name": "n"}, "status": {"inventory": True, "gpus": []}},
            )
            options = RelayOptions(
                access=Access(url=server.url),
                node="n",
                root=root,
                host_root=root / "usr/local/vgpu",
                kubelet=root / "kubelet",
                folder=root / "relay",
            )
            tasks = RelayTasks(options, client)
            serving = asyncio.create_task(tasks.serve())
            registration = asyncio.create_task(tasks.register())
            agent = site(root, kubelet=kubelet, folder=options.folder)
            agent_runs = asyncio.create_task(agent.registration.run())
            try:
                await until(lambda: agent.registration.registered and kubelet.allocatable)
                yield Scene(
                    tasks=tasks,
                    kubelet=kubelet,
                    server=server,
                    agent=agent,
                    agent_runs=agent_runs,
                    registration=registration,
                )
            finally:
                for task in (agent_runs, registration, serving):
                    task.cancel()
                await asyncio.wait([agent_runs, registration, serving])
                await agent.resources.close()
                await kubelet.stop()


def on(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        async with scene() as found:
            await act(found)

    asyncio.run(main())


def test_a_node_whose_agent_has_died_takes_no_bind() -> None:
    """Kubelet still has its slots: pods that were bound before are admitted."""

    async def act(found: Scene) -> None:
        assert found.is_open()

        await found.end_agent()

        await until(lambda: not found.is_open())
        assert found.kubelet.allocatable == 8

    on(act)


def test_a_relay_that_stops_waits_for_its_agent() -> None:
    """The agent is told to stop at the same time, and lets pods on their way arrive first."""

    async def act(found: Scene) -> None:
        leaving = asyncio.create_task(found.tasks.wait_for_agent_to_leave())
        await asyncio.sleep(0.3)
        assert not leaving.done()
        assert found.kubelet.allocatable == 8

        await found.end_agent()

        async with asyncio.timeout(SOON):
            await leaving

    on(act)


def test_a_relay_starts_anew_for_another_resource() -> None:
    """As the agent does whose settings name another one."""

    async def act(found: Scene) -> None:
        await found.end_agent()
        other = Kubelet(found.kubelet.folder, resource="volcano.sh/vgpu-other")
        renamed = site(found.agent.root, kubelet=other, folder=found.tasks.options.folder)
        running = asyncio.create_task(renamed.registration.run())

        async with asyncio.timeout(SOON):
            with pytest.raises(ExceptionGroup) as ended:
                await found.registration

        assert ended.group_contains(RuntimeError, match="another resource")
        running.cancel()
        await asyncio.wait([running])
        await renamed.resources.close()

    on(act)
