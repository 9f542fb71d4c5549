"""What a starting container is told of its promise, where caches know it and where they do not."""

import json
from collections.abc import Awaitable, Callable

import pytest

from agent.deviceplugin.entry_client import EntryClient
from agent.share import NotYetError, Owner
from tests.integration.agent.clusterside import PODS, Scene, play, promised


def entry_client(scene: Scene) -> EntryClient:
    hardware = scene.hardware
    return EntryClient(
        scene.client,
        scene.informer,
        scene.status_controller,
        devices=lambda: () if hardware is None else hardware.devices,
    )


def owner(uid: str) -> Owner:
    return Owner(uid=uid, namespace="team-a", pod="p", containers=("main",))


def test_a_known_entry_needs_no_request() -> None:
    """A start costs no call where the watches have told of pod and entry."""

    async def act(scene: Scene) -> None:
        uid = scene.bind("p")
        scene.promise(promised(uid))
        await scene.caught_up()
        before = len(scene.server.requests)

        share = await entry_client(scene).share(owner(uid))

        assert (share.owner.uid, share.grants[0].gpu, share.key) == (uid, "GPU-0", "c0")
        assert len(scene.server.requests) == before

    play(act)


def test_an_entry_that_no_watch_delivered_is_requested() -> None:
    """Kubelet may hear of a pod before we do."""

    async def act(scene: Scene) -> None:
        uid = scene.bind("p")
        scene.promise(promised(uid))

        assert (await entry_client(scene).share(owner(uid))).owner.uid == uid

    play(act)


async def _change_nothing(_: Scene) -> None:
    """Leave everything as it is."""


async def _bind_pod(scene: Scene) -> None:
    scene.bind("p")


async def _fail_api_server(scene: Scene) -> None:
    scene.server.answer_next(500, times=5)


async def _bind_elsewhere(scene: Scene) -> None:
    scene.bind("p")
    scene.change(f"{PODS}/p", spec={"nodeName": "other", "containers": [{"name": "main"}]})
    scene.promise(promised("uid-3"))


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        pytest.param(_change_nothing, "not bound to this node", id="no-pod"),
        pytest.param(_bind_pod, "no entry on this node", id="no-entry"),
        pytest.param(_fail_api_server, "cannot be read from the API server", id="server-down"),
        pytest.param(_bind_elsewhere, "not bound to this node", id="another-node"),
    ],
)
def test_a_start_that_cannot_be_vouched_for_is_refused(
    prepare: Callable[[Scene], Awaitable[None]], words: str
) -> None:
    """With a reason, and kubelet asks again."""

    async def act(scene: Scene) -> None:
        await prepare(scene)
        with pytest.raises(NotYetError, match=words):
            await entry_client(scene).share(owner("uid-3"))

    play(act)


def test_an_annotation_lands_on_that_very_pod() -> None:
    """Its uid is a precondition: one of the same name made since gets nothing."""

    async def act(scene: Scene) -> None:
        uid = scene.bind("p")
        await entry_client(scene).annotate(owner(uid), {"vgpu-admission.io/c0.visible": "MIG-1"})

        (written,) = scene.writes(f"{PODS}/p")
        assert json.loads(written.body)["metadata"] == {
            "uid": uid,
            "annotations": {"vgpu-admission.io/c0.visible": "MIG-1"},
        }

    play(act)


def test_an_annotation_that_cannot_be_written_starts_nothing() -> None:
    """The container would see no GPU."""

    async def act(scene: Scene) -> None:
        with pytest.raises(NotYetError, match="cannot be annotated with its devices"):
            await entry_client(scene).annotate(owner("gone"), {"a": "b"})

    play(act)
