"""Nodes of our agents are registered with HAMi's scheduler while they offer its resource."""

import asyncio

import pytest
from structlog.testing import capture_logs

from allocator.catalog.hami_keys import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from allocator.catalog.keys import HAMI_REGISTER_KEY
from allocator.hami.node_marks import hami_marks
from allocator.hami.register_controller import HamiRegisterController, RegisteredNodeInputs
from allocator.hami.registered_gpus import hami_register_of
from allocator.ledger.ledger import Ledger
from kube.errors import UnreachableError
from tests.builders.gpunodes import ledger
from tests.builders.model import T4, nodes_of
from tests.fakes.kube_clock import FakeClock
from tests.fakes.objects_client import ObjectsClient

NODES = "/api/v1/nodes"
LEDGER = ledger(nodes_of(1, T4))
REGISTER = hami_register_of(LEDGER, ())
ASKED = "Requesting_2026-11-21 17:16:40"
OFFERED = frozenset({"nvidia.com/gpu"})


class Site:
    """A Node, and a leader that registers it."""

    def __init__(self, **annotations: str) -> None:
        self.client = ObjectsClient()
        self.clock = FakeClock()
        self.wanted = True
        self.offered = OFFERED
        self.known = True
        self.ledger: Ledger | None = LEDGER
        self.count = "nvidia.com/gpu"
        self.client.put(NODES, {"metadata": {"name": "n0", "annotations": dict(annotations)}})
        self.controller = HamiRegisterController(
            self.client, self._inputs, clock=self.clock.clock()
        )

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.client.read(f"{NODES}/n0")["metadata"]["annotations"]
        return found

    def _inputs(self) -> dict[str, RegisteredNodeInputs] | None:
        if not self.known:
            return None
        marks = hami_marks(self.annotations, self.offered)
        return {
            "n0": RegisteredNodeInputs(
                marks=marks,
                ledger=self.ledger,
                counted=frozenset(),
                wanted=self.wanted,
                count=self.count,
            )
        }

    def sweep(self) -> int:
        """Sweep, and return the number of writes."""
        before = self.client.objects.version
        asyncio.run(self.controller.sweep())
        return self.client.objects.version - before


def test_a_node_is_registered_once() -> None:
    """Register, its digest and the report come in one write, and nothing is repeated."""
    site = Site()

    assert site.sweep() == 1
    assert site.annotations[REGISTER_ANNOTATION] == REGISTER
    assert site.annotations[HANDSHAKE_ANNOTATION].startswith("Reported 2026-11-21 17:16:40")
    assert site.annotations[HAMI_REGISTER_KEY]
    assert site.sweep() == 0


def test_a_register_that_was_removed_comes_back() -> None:
    """HAMi's own plugin forgets it until it is restarted."""
    site = Site()
    site.sweep()
    del site.annotations[REGISTER_ANNOTATION]

    assert site.sweep() == 1
    assert site.annotations[REGISTER_ANNOTATION] == REGISTER


def test_nothing_is_registered_before_it_is_allocatable() -> None:
    """HAMi would drop the node and take it back, again and again."""
    site = Site()
    site.offered = frozenset()

    assert site.sweep() == 0
    site.offered = OFFERED
    assert site.sweep() == 1
    site.offered = frozenset()
    assert site.sweep() == 1
    assert REGISTER_ANNOTATION not in site.annotations
    assert HAMI_REGISTER_KEY not in site.annotations


def test_the_resource_may_have_another_name() -> None:
    """HAMi's scheduler then looks at that one."""
    site = Site()
    site.count = "x.y/gpu"

    assert site.sweep() == 0
    site.offered = frozenset({"x.y/gpu"})
    assert site.sweep() == 1


def test_a_register_goes_with_the_setting() -> None:
    """What we wrote we remove."""
    site = Site()
    site.sweep()
    site.wanted = False

    assert site.sweep() == 1
    assert REGISTER_ANNOTATION not in site.annotations


@pytest.mark.parametrize("wanted", [True, False])
def test_another_plugins_register_is_left_alone(*, wanted: bool) -> None:
    """Two writers would overwrite each other; the conflict is told elsewhere."""
    site = Site(**{REGISTER_ANNOTATION: "[]"})
    site.wanted = wanted

    assert site.sweep() == 0
    assert site.annotations == {REGISTER_ANNOTATION: "[]"}


def test_a_question_is_answered_after_a_while() -> None:
    """Schedulers up to 2.9 wait 60 s, and ask again at every answer."""
    site = Site()
    site.sweep()
    site.annotations[HANDSHAKE_ANNOTATION] = ASKED

    assert site.sweep() == 0
    site.clock.now += 29
    assert site.sweep() == 0
    site.clock.now += 1
    assert site.sweep() == 1
    assert site.annotations[HANDSHAKE_ANNOTATION].startswith("Reported 2026-11-21 17:17:10")
    site.annotations[HANDSHAKE_ANNOTATION] = ASKED
    assert site.sweep() == 0


def test_a_handshake_that_is_missing_is_written_at_once() -> None:
    """No scheduler has asked, so none asks again at the answer."""
    site = Site()
    site.sweep()
    site.annotations[HANDSHAKE_ANNOTATION] = ""

    assert site.sweep() == 1
    assert site.annotations[HANDSHAKE_ANNOTATION].startswith("Reported")


def test_a_question_to_a_node_that_was_away_is_as_new() -> None:
    """It waits as long as any other."""
    site = Site()
    site.sweep()
    site.annotations[HANDSHAKE_ANNOTATION] = ASKED
    assert site.sweep() == 0
    site.wanted = False
    site.sweep()
    site.clock.now += 60
    site.wanted = True
    assert site.sweep() == 1
    site.annotations[HANDSHAKE_ANNOTATION] = ASKED

    assert site.sweep() == 0


def test_a_node_without_a_ledger_is_registered_no_more() -> None:
    """Its GPUNode was deleted, or cannot be read."""
    site = Site()
    site.sweep()
    site.ledger = None

    with capture_logs() as logs:
        assert site.sweep() == 1
    assert REGISTER_ANNOTATION not in site.annotations
    assert not [line for line in logs if line["log_level"] == "error"]


def test_a_register_that_could_not_be_written_is_logged() -> None:
    """With the node and why."""
    site = Site()

    def fail(_: str) -> None:
        raise UnreachableError("down", sent=False)

    site.client.before_write = fail
    with capture_logs() as logs:
        site.sweep()

    assert [(line["event"], line["node"]) for line in logs] == [("register not updated", "n0")]


def test_nothing_is_written_before_everything_is_known() -> None:
    """A register without the pods would show too much room."""
    site = Site()
    site.known = False

    assert site.sweep() == 0


def test_a_failed_write_is_repeated_with_pauses() -> None:
    """The API server is not asked every second while it is away."""
    site = Site()
    calls: list[str] = []

    def fail(path: str) -> None:
        calls.append(path)
        raise UnreachableError("down", sent=False)

    site.client.before_write = fail
    site.sweep()
    site.sweep()
    assert len(calls) == 1
    site.clock.now += 60
    site.client.before_write = lambda _: None

    assert site.sweep() == 1


def test_a_node_that_has_nothing_is_not_written() -> None:
    """Otherwise every sweep would write to every Node of a cluster without HAMi."""
    site = Site()
    site.wanted = False
    calls: list[str] = []
    site.client.before_write = calls.append
    site.sweep()

    assert calls == []
