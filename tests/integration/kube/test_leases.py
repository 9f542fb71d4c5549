"""Elections and Events through the real client, on both event loops."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from kube.client import Client
from kube.config import Access
from kube.events import Event, Recorder, Reference, Severity
from kube.leases import Election, LeaseCandidate
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer

LOOPS = pytest.mark.parametrize(
    "loop",
    [
        pytest.param(asyncio.new_event_loop, id="asyncio"),
        pytest.param(uvloop.new_event_loop, id="uvloop"),
    ],
)

Loop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
def test_leadership_is_handed_over(loop: Loop) -> None:
    """The second leads as soon as the first, on its way out, has released the Lease."""

    async def play() -> list[int | None]:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            first, second = (
                Election(client, LeaseCandidate(namespace="vgpu", name="certs", identity=name))
                for name in ("first", "second")
            )
            running = asyncio.create_task(first.run())
            await first.elected.wait()
            await second.round()
            terms = [first.term, second.term]
            running.cancel()
            await asyncio.wait([running])
            await second.round()
            return [*terms, first.term, second.term]

    with asyncio.Runner(loop_factory=loop) as runner:
        terms = runner.run(play())

    assert terms == [0, None, None, 1]


@LOOPS
def test_an_event_reaches_the_server(loop: Loop) -> None:
    """What was recorded is stored, and the server finds nothing wrong with it."""
    event = Event(
        regarding=Reference(api_version="v1", kind="Node", name="gpu-1"),
        severity=Severity.NORMAL,
        reason="GpuRecovered",
        action="Check",
        note="GPU 1 is back",
    )

    async def play() -> list[str]:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            recorder = Recorder(client, controller="vgpu-admission.io/agent", instance="gpu-1")
            await recorder.write(event)
            place = parsed("/apis/events.k8s.io/v1/namespaces/default/events")
            return [stored["note"] for stored in server.objects.at(place)]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(play()) == ["GPU 1 is back"]
