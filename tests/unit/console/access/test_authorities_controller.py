"""Publishing the authority by which kubectl vgpu knows the console."""

import asyncio
from collections.abc import Mapping
from typing import Unpack

import pytest
from structlog.testing import capture_logs

from console.access.authorities_controller import (
    FIRST_SECONDS,
    POLL_SECONDS,
    RENEW_SECONDS,
    AuthoritiesController,
)
from kube.client import CallOptions
from kube.errors import ApiError, KubeError, NotFoundError
from tests.fakes.api_client import FakeApiClient
from tests.fakes.kube_clock import FakeClock
from tests.fakes.pki import Authority

ONE, OTHER = (Authority(name).certificate.decode() for name in ("one", "other"))
PATH = "/api/v1/namespaces/system/configmaps/vgpu-console-ca"


class Maps(FakeApiClient):
    def __init__(self) -> None:
        self.written: list[tuple[str, object]] = []
        self.error: KubeError | None = None

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **options: Unpack[CallOptions]
    ) -> bytes:
        del options
        if self.error is not None:
            raise self.error
        self.written.append((path, changes))
        return b"{}"


def test_it_is_written_when_it_changes_and_now_and_then() -> None:
    """Somebody may have written something else."""
    maps, clock, text = Maps(), FakeClock(), [ONE]

    async def scenario() -> None:
        controller = AuthoritiesController(
            client=maps, namespace="system", authorities=lambda: text[0], clock=clock.clock()
        )
        for _ in range(3):
            await controller.publish()
        assert maps.written == [(PATH, {"data": {"ca.crt": ONE}})]
        text[0] = OTHER
        await controller.publish()
        assert maps.written[1:] == [(PATH, {"data": {"ca.crt": OTHER}})]
        clock.now += RENEW_SECONDS
        await controller.publish()
        assert len(maps.written) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["", "no pem", ONE[:-40]])
def test_what_is_no_authority_is_not_published(text: str) -> None:
    """People would trust nothing, or not what they should."""
    maps = Maps()
    controller = AuthoritiesController(client=maps, namespace="system", authorities=lambda: text)

    asyncio.run(controller.publish())

    assert maps.written == []


@pytest.mark.parametrize(
    "error", [ApiError(403, "Forbidden", "no"), ApiError(500, "InternalError", "etcd")]
)
def test_a_failure_is_tried_again(error: KubeError) -> None:
    """At the next look."""
    maps = Maps()
    controller = AuthoritiesController(client=maps, namespace="system", authorities=lambda: ONE)

    async def scenario() -> None:
        maps.error = error
        await controller.publish()
        maps.error = None
        await controller.publish()

    asyncio.run(scenario())
    assert len(maps.written) == 1


@pytest.mark.parametrize(
    "error", [NotFoundError(404, "NotFound", "none"), ApiError(403, "Forbidden", "no")]
)
def test_it_is_there_seconds_after_it_can_be_written(error: KubeError) -> None:
    """The ConfigMap or the right to it may be created after the console; the log says so once."""
    maps, clock = Maps(), FakeClock()
    maps.error = error

    async def scenario() -> None:
        controller = AuthoritiesController(
            client=maps, namespace="system", authorities=lambda: ONE, clock=clock.clock()
        )
        running = asyncio.create_task(controller.run())
        while len(clock.slept) < 3:  # noqa: ASYNC110 -- the clock is a fake
            await asyncio.sleep(0)
        maps.error = None
        while not maps.written:  # noqa: ASYNC110
            await asyncio.sleep(0)
        running.cancel()

    with capture_logs() as logs:
        asyncio.run(asyncio.wait_for(scenario(), 10))
    assert clock.slept[:3] == [FIRST_SECONDS] * 3
    assert [line["event"] for line in logs] == ["authority not published"]


def test_the_first_is_published_as_soon_as_it_is_known() -> None:
    """People wait for it, while the file of the authority is still to come."""
    maps, clock, text = Maps(), FakeClock(), [""]

    async def scenario() -> None:
        controller = AuthoritiesController(
            client=maps, namespace="system", authorities=lambda: text[0], clock=clock.clock()
        )
        running = asyncio.create_task(controller.run())
        while len(clock.slept) < 3:  # noqa: ASYNC110 -- the clock is a fake
            await asyncio.sleep(0)
        text[0] = ONE
        while not maps.written:  # noqa: ASYNC110
            await asyncio.sleep(0)
        published = len(clock.slept)
        while len(clock.slept) < published + 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(scenario())
    assert set(clock.slept) == {FIRST_SECONDS, POLL_SECONDS}
    assert clock.slept[:3] == [FIRST_SECONDS] * 3
    assert clock.slept[-1] == POLL_SECONDS
