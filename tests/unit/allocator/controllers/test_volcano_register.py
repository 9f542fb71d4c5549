"""The registrar writes a register when it has something to say, and answers when it is asked."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Unpack

import pytest

from allocator.catalog.keys import REGISTER_KEY
from allocator.cluster.objects import NodeObject
from allocator.controllers.volcano_register import RegisterInputs, VolcanoRegisterController
from allocator.families.metax import METAX_FAMILY
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.request.pod_summary import PodSummary
from allocator.volcano.register import (
    HANDSHAKE_ANNOTATION,
    REGISTER_ANNOTATION,
    HandshakePhase,
    decode_handshake,
    encode_handshake,
    node_from_register,
)
from kube.client import CallOptions
from kube.errors import UnreachableError
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import T4, nodes_of, soft_grant
from tests.fakes.api_client import FakeApiClient
from tests.fakes.kube_clock import FakeClock

NODE = nodes_of(1, T4)
EMPTY = "GPU-n0-0,10,15360,NVIDIA-Tesla T4,true,hami-core:"
PROMISE = entry("a", soft_grant(5000, gpu="GPU-n0-0"))
BOUND = PodSummary(uid="a", node="n0", deleting=False, over=False, assignment_json="[]")


@dataclass
class Site(FakeApiClient):
    """One Node, its GPUNode, and who writes to it."""

    world: RegisterInputs
    clock: FakeClock = field(default_factory=FakeClock)
    writes: int = 0
    down: bool = False

    def __post_init__(self) -> None:
        self.registrar = VolcanoRegisterController(
            self, lambda: self.world, clock=self.clock.clock()
        )

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **_: Unpack[CallOptions]
    ) -> bytes:
        assert path == "/api/v1/nodes/n0"
        self.writes += 1
        if self.down:
            raise UnreachableError("down", sent=True)
        metadata: dict[str, Any] = changes["metadata"]  # type: ignore[assignment]  # ours
        assert metadata.get("resourceVersion", "") == self.node.resource_version
        written = metadata["annotations"]
        node = replace(
            self.node,
            register=written[REGISTER_ANNOTATION],
            handshake=written.get(HANDSHAKE_ANNOTATION, self.node.handshake),
            saved_register=written.get(REGISTER_KEY, self.node.saved_register) or "",
        )
        self.world = replace(self.world, nodes={"n0": node})
        return b"{}"

    @property
    def node(self) -> NodeObject:
        return self.world.nodes["n0"]

    def sweep(self, *, after: float = 0.0) -> None:
        self.clock.now += after
        asyncio.run(self.registrar.sweep())


def site(text: str = "", handshake: str = "", *, pod: PodSummary | None = None) -> Site:
    entries = () if pod is None else (PROMISE,)
    return Site(
        RegisterInputs(
            nodes={"n0": NodeObject("n0", text, handshake=handshake)},
            ledgers={"n0": ledger(NODE, entries)},
            pods={} if pod is None else {"a": pod},
            factor=1,
        )
    )


def reported(scene: Site) -> str:
    return encode_handshake(HandshakePhase.REPORTED, scene.clock.clock().wall())


def test_a_new_node_is_registered_at_once() -> None:
    """Both annotations in one write: one without the other crashes the scheduler."""
    scene = site()

    scene.sweep()
    scene.sweep()

    assert scene.node.register == EMPTY
    assert decode_handshake(scene.node.handshake) is not None
    assert scene.writes == 1


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        pytest.param(BOUND, EMPTY, id="it-counts-the-pod-itself"),
        pytest.param(
            replace(BOUND, over=True), EMPTY.replace("10,15360", "9,10360"), id="forgotten-too-soon"
        ),
    ],
)
def test_what_it_cannot_see_is_taken_off_once(pod: PodSummary, text: str) -> None:
    """After a while, so that a promise whose Binding is on its way costs no write."""
    scene = site(EMPTY, pod=pod)
    scene.world = replace(scene.world, nodes={"n0": replace(scene.node, handshake=reported(scene))})

    scene.sweep()
    assert scene.node.register == EMPTY
    scene.sweep(after=1.0)
    assert scene.node.register == EMPTY
    scene.sweep(after=1.5)
    scene.sweep(after=5.0)

    assert scene.node.register == text
    assert scene.writes == (text != EMPTY)


@pytest.mark.parametrize(
    ("phase", "age", "writes"),
    [
        pytest.param(HandshakePhase.REPORTED, 1000.0, 0, id="its-turn"),
        pytest.param(HandshakePhase.REQUESTING, 5.0, 0, id="asked-just-now"),
        pytest.param(HandshakePhase.REQUESTING, 50.0, 1, id="asked"),
        pytest.param(HandshakePhase.DELETED, 0.0, 1, id="given-up"),
        pytest.param(None, 0.0, 1, id="never"),
    ],
)
def test_a_handshake_is_answered(phase: HandshakePhase | None, age: float, writes: int) -> None:
    """Well inside the minute that it waits, and not so fast that it only begs the next question."""
    scene = site(EMPTY)
    asked = scene.clock.clock().wall() - timedelta(seconds=age)
    text = "" if phase is None else encode_handshake(phase, asked)
    scene.world = replace(scene.world, nodes={"n0": replace(scene.node, handshake=text)})

    scene.sweep()

    assert scene.writes == writes
    assert scene.node.register == EMPTY


@pytest.mark.parametrize(
    ("phase", "writes"), [(HandshakePhase.REQUESTING, 1), (HandshakePhase.REPORTED, 0)]
)
def test_it_counts_anew_when_a_tenant_has_left(phase: HandshakePhase, writes: int) -> None:
    """Its account took off less than it had charged; one write heals it, where it asks at all."""
    scene = site(EMPTY, pod=BOUND)
    asked = encode_handshake(phase, scene.clock.clock().wall())
    scene.world = replace(scene.world, nodes={"n0": replace(scene.node, handshake=asked)})
    scene.sweep()

    scene.world = replace(scene.world, ledgers={"n0": ledger(NODE)}, pods={})
    scene.sweep()
    assert scene.writes == 0
    for _ in range(4):
        scene.sweep(after=2.5)

    assert scene.writes == writes
    assert scene.node.register == EMPTY


def test_a_node_that_is_out_of_reach_is_tried_again_later() -> None:
    """Not at every sweep, and the others are not kept waiting."""
    scene = site()
    scene.down = True

    scene.sweep()
    scene.sweep()
    assert scene.writes == 1

    scene.down = False
    scene.sweep(after=60.0)
    assert scene.node.register == EMPTY


@pytest.mark.parametrize("text", ["", EMPTY], ids=["new", "registered"])
def test_gpus_that_another_plugin_describes_are_not_registered(text: str) -> None:
    """Volcano would take them for NVIDIA's; a register that is there is left as it is."""
    scene = site(text)
    gpus = tuple(replace(gpu, family=METAX_FAMILY.name, mode=Mode.NATIVE) for gpu in NODE.gpus)
    scene.world = replace(scene.world, ledgers={"n0": ledger(replace(NODE, gpus=gpus))})

    scene.sweep()
    scene.sweep(after=5.0)

    assert scene.writes == 0
    assert scene.node.register == text


def test_a_gpunode_without_a_node_is_nobodys() -> None:
    """There is nothing to write to."""
    scene = site()
    scene.world = replace(scene.world, nodes={})

    scene.sweep()

    assert scene.writes == 0


LOWERED = EMPTY.replace("10,15360", "9,10360")
# As an older plugin writes it; not how we would.
PLUGINS = "GPU-n0-0,20,15109,NVIDIA-Tesla T4,true:"


def lowered() -> Site:
    """Return a node whose register says less than there is, because a pod is not quite gone."""
    scene = site(EMPTY, pod=replace(BOUND, over=True))
    scene.world = replace(scene.world, nodes={"n0": replace(scene.node, handshake=reported(scene))})
    scene.sweep()
    scene.sweep(after=2.5)
    assert scene.node.register == LOWERED
    return scene


def hand_over(scene: Site, *, ours: bool) -> None:
    scene.world = replace(scene.world, keeps_registers=ours)


def test_what_was_taken_off_is_given_back_to_whoever_registers_next() -> None:
    """At once, in one write, which leaves nothing of ours behind; and taken off again later."""
    scene = lowered()
    assert scene.node.full_register == EMPTY
    before = scene.writes

    hand_over(scene, ours=False)
    for _ in range(3):
        scene.sweep(after=2.5)
    assert (scene.node.register, scene.node.saved_register, scene.writes) == (EMPTY, "", before + 1)

    hand_over(scene, ours=True)
    scene.sweep()
    scene.sweep(after=2.5)
    assert (scene.node.register, scene.node.full_register) == (LOWERED, EMPTY)


def test_what_another_wrote_stays() -> None:
    """Of his register only our note is taken away; he may write again before that."""
    scene = lowered()
    scene.world = replace(scene.world, nodes={"n0": replace(scene.node, register=PLUGINS)})

    hand_over(scene, ours=False)
    scene.sweep()

    assert (scene.node.register, scene.node.saved_register) == (PLUGINS, "")


READ = node_from_register("n0", PLUGINS).node


@pytest.mark.parametrize(
    "registered", [replace(NODE, gpus=()), READ], ids=["nothing", "what-it-said"]
)
def test_a_plugin_that_was_shut_out_gets_its_own_words_back(registered: Node) -> None:
    """Where nobody accounted for the node its register gives nothing, however often it is read."""
    scene = site(PLUGINS)
    bare = replace(ledger(NODE), node=registered, inventory="")
    scene.world = replace(scene.world, ledgers={"n0": bare})
    for _ in range(4):
        scene.sweep(after=2.5)
    assert scene.node.register == "GPU-n0-0,0,15109,NVIDIA-Tesla T4,true,hami-core:"
    assert scene.node.full_register == PLUGINS

    hand_over(scene, ours=False)
    scene.sweep()

    assert (scene.node.register, scene.node.saved_register) == (PLUGINS, "")


def test_a_register_that_says_all_there_is_needs_no_note() -> None:
    """Nothing is kept where nothing is taken off, so that nothing is there to be given back."""
    scene = site()
    scene.sweep()
    assert (scene.node.register, scene.node.saved_register) == (EMPTY, "")
    before = scene.writes

    hand_over(scene, ours=False)
    scene.sweep(after=60.0)

    assert scene.writes == before


def test_a_node_that_moved_meanwhile_is_tried_again() -> None:
    """The write is for the version that was read, so that nobody's register is lost."""
    scene = lowered()
    scene.down = True
    hand_over(scene, ours=False)
    scene.sweep()
    scene.down = False
    scene.world = replace(scene.world, nodes={"n0": replace(scene.node, resource_version="7")})

    scene.sweep(after=60.0)

    assert scene.node.register == EMPTY
