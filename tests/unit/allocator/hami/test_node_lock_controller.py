"""Locks that nobody needs are released, and others are left alone."""

import asyncio

import pytest
from structlog.testing import capture_logs

from allocator.catalog.hami_keys import LOCK_ANNOTATION, PHASE_KEY
from allocator.hami.node_lock_client import NodeLockClient
from allocator.hami.node_lock_controller import NodeLockController
from kube.errors import UnreachableError
from tests.fakes.api_rules import Json
from tests.fakes.kube_clock import FakeClock
from tests.fakes.objects_client import ObjectsClient

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/team-a/pods"
LOCK = "2026-11-21T17:16:40Z,team-a,p"  # when the clock starts


class Site:
    """A Node with a lock, and a leader that releases it."""

    def __init__(self, lock: str = LOCK) -> None:
        self.client = ObjectsClient()
        self.clock = FakeClock()
        annotations = {LOCK_ANNOTATION: lock, "kept": "x"}
        self.client.put(NODES, {"metadata": {"name": "n0", "annotations": annotations}})
        locks = NodeLockClient(calls=self.client, clock=self.clock.clock())
        self.controller = NodeLockController(locks, self._locked, clock=self.clock.clock())

    def _locked(self) -> dict[str, str]:
        return {"n0": self.lock} if self.lock else {}

    @property
    def lock(self) -> str:
        annotations = self.client.read(f"{NODES}/n0")["metadata"]["annotations"]
        assert annotations["kept"] == "x"
        return str(annotations.get(LOCK_ANNOTATION, ""))

    def add_pod(self, node: str, phase: str) -> Json:
        spec = {"nodeName": node} if node else {}
        metadata = {"name": "p", "annotations": {PHASE_KEY: phase}}
        return self.client.put(PODS, {"metadata": metadata, "spec": spec, "status": {}})

    def sweep(self) -> None:
        asyncio.run(self.controller.sweep())


def test_the_lock_of_a_binding_that_did_not_happen_is_released() -> None:
    """Its pod is not bound after some seconds."""
    site = Site()
    site.add_pod("", "")

    site.sweep()
    assert site.lock == LOCK
    site.clock.now += 15
    site.sweep()

    assert site.lock == ""


def test_a_pod_that_waits_for_the_plugin_keeps_its_lock() -> None:
    """However long that takes: another pod would get its devices."""
    site = Site()
    site.add_pod("n0", "allocating")

    site.clock.now += 3600
    site.sweep()

    assert site.lock == LOCK


@pytest.mark.parametrize("phase", ["success", "failed"])
def test_a_lock_that_the_plugin_left_is_released(phase: str) -> None:
    """The plugin ended between its two writes, or our agent serves the pod."""
    site = Site()
    site.add_pod("n0", phase)

    site.sweep()

    assert site.lock == ""


@pytest.mark.parametrize("lock", [LOCK, "soon,team-a,p", "2026-11-21T17:00:00Z"])
def test_the_lock_of_no_pod_is_released(lock: str) -> None:
    """Its pod was deleted, or HAMi itself could not read it."""
    site = Site(lock)

    site.sweep()

    assert site.lock == ""


def test_a_lock_that_was_taken_meanwhile_stays() -> None:
    """The release tests the version that was read."""
    site = Site()
    theirs = "2026-11-21T17:16:41Z,team-a,q"

    def write_first(path: str) -> None:
        node = site.client.read(path)["metadata"]
        node["annotations"][LOCK_ANNOTATION] = theirs
        node["resourceVersion"] = "999"

    site.client.before_write = write_first
    site.sweep()

    assert site.lock == theirs


def test_an_api_server_that_is_away_is_asked_again() -> None:
    """A failure pauses the node, and the next try succeeds."""
    site = Site()

    def fail(_: str) -> None:
        raise UnreachableError("down", sent=False)

    site.client.before_write = fail
    site.sweep()
    site.client.before_write = lambda _: None
    site.sweep()
    assert site.lock == LOCK
    site.clock.now += 60
    site.sweep()

    assert site.lock == ""


def test_before_all_nodes_are_known_nothing_is_released() -> None:
    """Nobody knows whose nodes they are."""
    site = Site()
    locks = NodeLockClient(calls=site.client, clock=site.clock.clock())
    site.clock.now += 3600

    asyncio.run(NodeLockController(locks, lambda: None, clock=site.clock.clock()).sweep())

    assert site.lock == LOCK


def test_the_log_says_what_was_released_and_what_was_not() -> None:
    """Nothing of a lock that somebody needs."""
    site = Site()
    site.add_pod("", "")

    def fail(_: str) -> None:
        raise UnreachableError("down", sent=False)

    with capture_logs() as logs:
        site.sweep()
        site.clock.now += 15
        site.client.before_write = fail
        site.sweep()
        site.clock.now += 60
        site.client.before_write = lambda _: None
        site.sweep()

    events = [line["event"] for line in logs if "lock " in line["event"]]
    assert events == ["node lock not released", "node lock written", "stale node lock released"]
