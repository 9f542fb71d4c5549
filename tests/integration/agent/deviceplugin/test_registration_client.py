"""Registration with a kubelet that restarts, forgets, refuses, and is taken away."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from agent.deviceplugin import grpc_client
from agent.deviceplugin.registration_client import ENDPOINT, KUBELET
from agent.node.slots import SlotOffer
from agent.proto import deviceplugin_pb2 as pb
from tests.builders.model import soft_grant
from tests.integration.agent.starting import Site, on, site
from tests.integration.waiting import until


class OtherPlugin:
    """Another plugin for the same resource, on a socket of its own."""

    def __init__(self, node: Site, endpoint: str = "stranger.sock") -> None:
        self._kubelet = node.kubelet
        self._endpoint = endpoint
        self._server = grpc_client.GrpcServer(
            (
                grpc_client.unary_handler(grpc_client.OPTIONS, self._options),
                grpc_client.stream_handler(grpc_client.WATCH, self._watch),
            )
        )

    async def start(self) -> None:
        await self._server.start(self._kubelet.plugins / self._endpoint)

    async def register(self) -> None:
        channel = grpc_client.Channel(self._kubelet.plugins / KUBELET)
        request = pb.RegisterRequest(
            version="v1beta1", endpoint=self._endpoint, resource_name=self._kubelet.resource
        )
        await channel.call(grpc_client.REGISTER, request, within=5)
        await channel.close()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _options(self, _: pb.Empty) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    async def _watch(self, _: pb.Empty) -> AsyncIterator[pb.ListAndWatchResponse]:
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID="stranger", health="Healthy")])
        await asyncio.Event().wait()


def run_on_site(act: Callable[[Site], Awaitable[None]]) -> None:
    """Run *act* on a node of which nothing runs yet."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
            made_site = site(Path(folder))
            try:
                await act(made_site)
            finally:
                await made_site.resources.close()
                await made_site.kubelet.stop()

    asyncio.run(main())


async def cancel(*keepers: asyncio.Task[None]) -> None:
    for keeper in keepers:
        keeper.cancel()
    await asyncio.wait(keepers)


def test_kubelet_learns_of_every_offer() -> None:
    """What is offered last is what kubelet has, and what is unsound is not allocatable."""

    async def act(site: Site) -> None:
        site.plugin.offer(SlotOffer(total=20, healthy=13))

        await until(lambda: site.kubelet.allocatable == 13)

        assert len(site.kubelet.client.devices) == 20
        assert site.kubelet.client.options.pre_start_required
        assert not site.kubelet.client.options.get_preferred_allocation_available

    on(act)


def test_a_kubelet_that_restarts_is_registered_with_again() -> None:
    """A new kubelet knows the plugin soon, and containers of before restart in their slots."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await site.kubelet.admit("uid-1", "train-0")
        await site.kubelet.run(held)

        await site.kubelet.stop()
        await site.kubelet.start()
        await site.registered()

        assert site.kubelet.registrations == 2
        assert await site.kubelet.run(held) == 0

    on(act)


def test_a_new_socket_of_kubelet_under_the_old_number_is_noticed() -> None:
    """A file system may give the socket of a new kubelet the inode of the old one.

    That cannot be had on every file system; there as here the time of the last change differs.
    """

    async def act(site: Site) -> None:
        socket = site.kubelet.plugins / KUBELET
        before = socket.stat()
        while (after := socket.stat()).st_ctime_ns == before.st_ctime_ns:
            socket.chmod(before.st_mode)  # the clock of a file system may tick slowly

        await until(lambda: site.kubelet.registrations == 2)
        await site.registered()

        assert (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino)

    on(act)


def test_a_socket_that_is_removed_is_made_again() -> None:
    """Somebody tidied kubelet's folder: kubelet can dial the plugin again soon."""

    async def act(site: Site) -> None:
        (site.kubelet.plugins / ENDPOINT).unlink()

        await until(lambda: site.kubelet.registrations == 2)
        await site.registered()

        assert (site.kubelet.plugins / ENDPOINT).is_socket()

    on(act)


def test_a_socket_that_is_stolen_is_taken_back() -> None:
    """Another program listens under our name: kubelet gets our answers again soon."""

    async def act(site: Site) -> None:
        (site.kubelet.plugins / ENDPOINT).unlink()
        thief = OtherPlugin(site, ENDPOINT)
        await thief.start()

        await until(lambda: site.kubelet.registrations == 2)
        await site.registered()

        assert "stranger" not in site.kubelet.client.devices
        await thief.stop()

    on(act)


def test_kubelet_mistaking_another_plugins_end_for_ours_gets_a_new_registration() -> None:
    """A plugin of before ends after ours registered; kubelet hangs up on ours, and we come back."""

    async def act(site: Site) -> None:
        before = OtherPlugin(site)
        await site.kubelet.start()
        await before.start()
        await before.register()
        await until(lambda: site.kubelet.allocatable == 1)
        keeper = asyncio.create_task(site.registration.run())
        await until(lambda: site.kubelet.allocatable == 8)

        await before.stop()
        await until(lambda: site.kubelet.registrations == 3)
        await until(lambda: site.kubelet.allocatable == 8)

        await cancel(keeper)

    run_on_site(act)


def test_a_refusal_is_tried_again() -> None:
    """Kubelet may refuse for a while; the plugin stays ready and registers in the end."""

    async def act(site: Site) -> None:
        site.kubelet.refusing = "not now"
        await site.kubelet.start()
        keeper = asyncio.create_task(site.registration.run())

        await until(lambda: site.kubelet.refused > 1)
        site.kubelet.refusing = None
        await until(lambda: site.kubelet.allocatable == 8)

        await cancel(keeper)

    run_on_site(act)


def test_the_agent_may_be_there_before_kubelet() -> None:
    """Nothing is served while there is no kubelet: one that starts would remove the socket."""

    async def act(site: Site) -> None:
        site.kubelet.plugins.mkdir(parents=True)
        keeper = asyncio.create_task(site.registration.run())
        await asyncio.sleep(0.1)
        early = (site.kubelet.plugins / ENDPOINT).exists()

        await site.kubelet.start()
        await until(lambda: site.kubelet.allocatable == 8)

        assert not early
        await cancel(keeper)

    run_on_site(act)


def test_an_agent_started_twice_serves_once() -> None:
    """The second waits for the first to end, however that ends, and then takes over."""

    async def act(own_site: Site) -> None:
        await own_site.kubelet.start()
        first = asyncio.create_task(own_site.registration.run())
        await own_site.registered()
        other = site(own_site.root, kubelet=own_site.kubelet, count=5)
        second = asyncio.create_task(other.registration.run())
        await asyncio.sleep(1)
        meanwhile = own_site.kubelet.registrations

        own_site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await own_site.kubelet.admit("uid-1", "train-0")
        await own_site.kubelet.run(held)

        await cancel(first)
        await until(lambda: own_site.kubelet.allocatable == 5)

        assert meanwhile == 1
        assert other.slots.holders(held.slots) == {"uid-1"}  # written while it waited
        await cancel(second)
        await other.resources.close()

    run_on_site(act)


def test_the_end_leaves_no_socket() -> None:
    """A plugin that was told to stop is not listened to, nor found, any more."""

    async def act(site: Site) -> None:
        await site.kubelet.start()
        keeper = asyncio.create_task(site.registration.run())
        await site.registered()

        await cancel(keeper)
        await until(lambda: site.kubelet.allocatable == 0)

        assert not (site.kubelet.plugins / ENDPOINT).exists()

    run_on_site(act)
