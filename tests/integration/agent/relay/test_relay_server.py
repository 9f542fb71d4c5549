"""A relay between a kubelet and an agent that dies, comes back, or never does."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.deviceplugin import grpc_client
from agent.deviceplugin.grpc_client import CallError, Code
from agent.deviceplugin.registration_client import KUBELET, PluginPaths, RegistrationClient
from agent.deviceplugin.slot_files import SlotFiles
from agent.node.slots import SlotOffer
from agent.proto import deviceplugin_pb2 as pb
from agent.relay.relay_server import ABSENT, SLOW, Relay
from tests.builders.model import mig_grant, soft_grant
from tests.fakes.kubelet import Kubelet
from tests.integration.agent.starting import Ledger, Site, edits, site
from tests.integration.waiting import until

START_SECONDS = 1.0  # rather than 28, for which a start waits for an agent
DEVICE = "vgpu-admission.io/slot="


class Chain:
    """A kubelet, a relay and an agent; each comes and goes by itself."""

    def __init__(
        self, root: Path, *, cdi: bool = True, start_seconds: float = START_SECONDS
    ) -> None:
        self.root, self._cdi, self._start_seconds = root, cdi, start_seconds
        self.folder = root / "relay"
        self.folder.mkdir()
        self.kubelet = Kubelet(root)
        self.absences = 0
        self.ledger: Ledger | None = None
        self.agent: Site | None = None
        self._agent_runs: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def relay(self) -> AsyncIterator[Relay]:
        """Run a relay while the block runs."""
        relay = Relay(
            self.root / "usr/local/vgpu",
            self.folder,
            note_absence=self._count,
            start_seconds=self._start_seconds,
        )
        (self.folder / KUBELET).unlink(missing_ok=True)
        server = grpc_client.GrpcServer(relay.registration_handlers)
        await server.start(self.folder / KUBELET)
        paths = PluginPaths(
            resource=self.kubelet.resource,
            folder=self.kubelet.plugins,
            lock=self.root / "state" / "relay.lock",
        )
        registration = RegistrationClient(relay, paths)
        registration.on_change = lambda: relay.note_registered(registered=registration.registered)

        async def register() -> None:
            await relay.listed.wait()
            await registration.run()

        keeper = asyncio.create_task(register())
        try:
            yield relay
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])
            await server.stop(0)

    def _count(self) -> None:
        self.absences += 1

    async def start_agent(self) -> Site:
        """Start an agent, which knows of the ledger what the last one knew."""
        made = site(self.root, cdi=self._cdi, kubelet=self.kubelet, folder=self.folder)
        if self.agent is not None:
            made.ledger.shares.update(self.agent.ledger.shares)
            made.ledger.pods.update(self.agent.ledger.pods)
        made.slots.write_setup(soft=True)
        self.agent = made
        self._agent_runs = asyncio.create_task(made.registration.run())
        await until(lambda: made.registration.registered)
        return made

    async def stop_agent(self) -> None:
        """End the agent; its socket goes with it."""
        assert self.agent is not None
        assert self._agent_runs is not None
        self._agent_runs.cancel()
        await asyncio.wait([self._agent_runs])
        await self.agent.resources.close()


def play(
    act: Callable[[Chain, Relay, Site], Awaitable[None]],
    *,
    cdi: bool = True,
    start_seconds: float = START_SECONDS,
) -> None:
    """Run *act* once an agent has registered through a relay."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:  # a socket's path is short
            chain = Chain(Path(folder), cdi=cdi, start_seconds=start_seconds)
            await chain.kubelet.start()
            try:
                async with chain.relay() as relay:
                    agent = await chain.start_agent()
                    await until(lambda: chain.kubelet.allocatable)
                    await act(chain, relay, agent)
                    await chain.stop_agent()
            finally:
                await chain.kubelet.stop()

    asyncio.run(main())


def test_calls_reach_the_agent_through_the_relay() -> None:
    """Kubelet learns of each offer, and a container starts with what it was promised."""

    async def act(chain: Chain, _: Relay, agent: Site) -> None:
        agent.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await chain.kubelet.admit("uid-1", "train-0")
        assert await chain.kubelet.run(held) == 0
        assert edits(agent, min(held.slots))
        agent.plugin.offer(SlotOffer(total=20, healthy=13))
        await until(lambda: chain.kubelet.allocatable == 13)
        assert chain.kubelet.registrations == 1

    play(act)


def test_a_refusal_of_the_agent_keeps_its_words() -> None:
    """Its user reads the same text and kubelet tries again as without a relay."""

    async def act(chain: Chain, _: Relay, agent: Site) -> None:
        agent.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await chain.kubelet.admit("uid-1", "train-0")
        agent.ledger.shares.clear()

        with pytest.raises(CallError) as refused:
            await chain.kubelet.prestart(held.slots)

        assert refused.value.code is Code.NOT_YET
        assert refused.value.details == "train-0 has no entry in the ledger"

    play(act)


def test_kubelet_does_not_notice_that_the_agent_is_gone() -> None:
    """It admits pods meanwhile; their containers start once the next agent is there."""

    async def act(chain: Chain, relay: Relay, agent: Site) -> None:
        await chain.stop_agent()
        await until(relay.left.is_set)

        held = await chain.kubelet.admit("uid-1", "train-0")
        (device,) = [device.name for device in held.answer.cdi_devices]
        assert device == DEVICE + min(held.slots)
        assert chain.absences == 1
        assert chain.kubelet.allocatable == 8
        agent.ledger.promise("uid-1", "train-0", soft_grant(6000))
        starting = asyncio.create_task(chain.kubelet.prestart(held.slots))
        await asyncio.sleep(START_SECONDS / 4)
        assert not starting.done()
        again = await chain.start_agent()
        await starting

        assert edits(again, min(held.slots))
        assert chain.kubelet.registrations == 1

    play(act)


def test_a_start_without_an_agent_is_refused_in_words() -> None:
    """Kubelet shows them on the pod, which stays, and tries again."""

    async def act(chain: Chain, relay: Relay, _: Site) -> None:
        held = await chain.kubelet.admit("uid-1", "train-0")
        await chain.stop_agent()
        await until(relay.left.is_set)

        with pytest.raises(CallError) as refused:
            await chain.kubelet.prestart(held.slots)

        assert (refused.value.code, refused.value.details) == (Code.NOT_YET, ABSENT)

        await chain.start_agent()

    play(act)


def test_a_start_that_the_agent_does_not_answer_is_refused_in_words() -> None:
    """It says so, rather than that the agent is gone."""

    async def act(chain: Chain, _: Relay, agent: Site) -> None:
        agent.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 0))
        agent.ledger.stuck = asyncio.Event()
        held = await chain.kubelet.admit("uid-1", "train-0")

        with pytest.raises(CallError) as refused:
            await chain.kubelet.prestart(held.slots)

        assert (refused.value.code, refused.value.details) == (Code.NOT_YET, SLOW)
        agent.ledger.stuck.set()

    play(act)


def test_an_agent_that_ends_during_a_start_is_followed_by_the_next() -> None:
    """Kubelet waits, and its one call is answered by the next agent."""

    async def act(chain: Chain, _: Relay, agent: Site) -> None:
        agent.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 0))
        agent.ledger.stuck = asyncio.Event()
        held = await chain.kubelet.admit("uid-1", "train-0")
        starting = asyncio.create_task(chain.kubelet.prestart(held.slots))
        await until(lambda: agent.ledger.asked)

        await chain.stop_agent()
        again = await chain.start_agent()
        await starting

        assert edits(again, min(held.slots))

    play(act, start_seconds=20.0)


@pytest.mark.parametrize(("soft", "mounts"), [(True, 4), (False, 0)])
def test_without_cdi_the_relay_mounts_what_the_agent_would(*, soft: bool, mounts: int) -> None:
    """And it marks a container that got no mounts, which must not share a GPU later."""

    async def act(chain: Chain, relay: Relay, agent: Site) -> None:
        agent.slots.write_setup(soft=soft)
        await chain.stop_agent()
        await until(relay.left.is_set)

        held = await chain.kubelet.admit("uid-1", "train-0")

        assert len(held.answer.mounts) == mounts
        assert (
            SlotFiles(chain.root / "usr/local/vgpu", cdi=None).lacks_mounts(held.slots) is not soft
        )
        await chain.start_agent()

    play(act, cdi=False)


def test_an_old_document_is_removed_when_its_slot_is_given_on() -> None:
    """A runtime that finds none fails; one that found another pod's would show its GPU."""

    async def act(chain: Chain, relay: Relay, agent: Site) -> None:
        agent.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await chain.kubelet.admit("uid-1", "train-0")
        await chain.kubelet.run(held)
        await chain.stop_agent()
        await until(relay.left.is_set)
        chain.kubelet.forget("uid-1")

        again = await chain.kubelet.admit("uid-2", "train-1")

        assert again.slots == held.slots
        with pytest.raises(FileNotFoundError):
            edits(agent, min(held.slots))
        await chain.start_agent()

    play(act)


def test_a_kubelet_that_restarts_knows_the_relay_again() -> None:
    """The agent is not registered meanwhile, so it closes the node."""

    async def act(chain: Chain, _: Relay, agent: Site) -> None:
        changes: list[bool] = []
        agent.registration.on_change = lambda: changes.append(agent.registration.registered)

        await chain.kubelet.stop()
        await chain.kubelet.start()
        await until(lambda: changes[-1:] == [True])

        assert changes == [False, True]
        assert chain.kubelet.registrations == 2
        await until(lambda: chain.kubelet.allocatable == 8)

    play(act)


def test_an_agent_notices_that_the_relay_is_gone() -> None:
    """It closes the node at once, and registers with the next relay."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
            chain = Chain(Path(folder))
            await chain.kubelet.start()
            async with chain.relay():
                agent = await chain.start_agent()
                await until(lambda: chain.kubelet.allocatable)
            await until(lambda: not agent.registration.registered)
            assert chain.kubelet.allocatable == 0
            async with chain.relay():
                await until(lambda: agent.registration.registered and chain.kubelet.allocatable)
                await chain.stop_agent()
            await chain.kubelet.stop()

    asyncio.run(main())


@dataclass(frozen=True, slots=True)
class Wrong:
    """A registration that no agent of ours would send."""

    resource: str = "volcano.sh/vgpu-number"
    endpoint: str = "vgpu-admission.sock"


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(endpoint=""),
        Wrong(endpoint="../relay/vgpu-admission.sock"),
        Wrong(endpoint="/etc/passwd"),
        Wrong(endpoint="nobody.sock"),
        Wrong(endpoint="kubelet.sock\0"),
        Wrong(endpoint="x" * 300),
        Wrong(endpoint=KUBELET),  # the relay itself, which is no plugin
        Wrong(resource="nvidia.com/gpu"),
        Wrong(resource=""),
        Wrong(resource="volcano.sh/vgpu-number\n"),
    ],
    ids=lambda wrong: f"{wrong.resource[:24]!r}-{wrong.endpoint[:24]!r}",
)
def test_a_wrong_registration_does_not_displace_the_agent(wrong: Wrong) -> None:
    """It is refused, and kubelet's calls go on to the agent that there is."""

    async def act(chain: Chain, _: Relay, agent: Site) -> None:
        channel = grpc_client.Channel(chain.folder / KUBELET)
        request = pb.RegisterRequest(
            version="v1beta1", endpoint=wrong.endpoint, resource_name=wrong.resource
        )

        with pytest.raises(CallError):
            await channel.call(grpc_client.REGISTER, request, within=10)

        await channel.close()
        agent.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await chain.kubelet.admit("uid-1", "train-0")
        assert await chain.kubelet.run(held) == 0
        assert agent.registration.registered

    play(act)
