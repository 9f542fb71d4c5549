"""The node lock is written by whoever may hold it, on the version of the Node that was read."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from allocator.catalog.hami_keys import LOCK_ANNOTATION, PHASE_KEY
from allocator.hami.node_lock_client import ATTEMPTS, REFRESH_AFTER, NodeLockClient
from tests.fakes.api_rules import Json
from tests.fakes.kube_clock import FakeClock
from tests.fakes.objects_client import ObjectsClient

NODE = "/api/v1/nodes/n0"
PODS = "/api/v1/namespaces/team-a/pods"
MINE, THEIRS = "2026-11-21T17:16:40Z,team-a,p", "2026-11-21T17:16:40Z,team-a,other"


class Site:
    """A Node, and a replica that locks it for ``team-a/p``."""

    def __init__(self, lock: str = "") -> None:
        self.client = ObjectsClient()
        self.clock = FakeClock()
        annotations = {LOCK_ANNOTATION: lock} if lock else {}
        self.client.put("/api/v1/nodes", {"metadata": {"name": "n0", "annotations": annotations}})
        self.locks = NodeLockClient(calls=self.client, clock=self.clock.clock())
        self.writes = 0
        self.client.before_write = self._count

    def _count(self, _: str) -> None:
        self.writes += 1

    def others_write(self, times: int) -> None:
        """Let somebody else change the Node before each of the next *times* writes."""

        def write_first(_: str) -> None:
            self.writes += 1
            if self.writes <= times:
                self.client.read(NODE)["metadata"]["resourceVersion"] = f"9{self.writes}"

        self.client.before_write = write_first

    @property
    def lock(self) -> str:
        annotations = self.client.read(NODE)["metadata"].get("annotations") or {}
        return str(annotations.get(LOCK_ANNOTATION, ""))

    def add_other(self, status: Json) -> None:
        metadata = {"name": "other", "annotations": {PHASE_KEY: "allocating"}}
        self.client.put(PODS, {"metadata": metadata, "spec": {"nodeName": "n0"}, "status": status})

    def take(self) -> bool:
        return asyncio.run(self.locks.take("n0", "team-a", "p"))

    def release(self) -> None:
        asyncio.run(self.locks.release("n0", "team-a", "p"))


def test_nobody_releases_the_lock_of_another() -> None:
    """Its pod waits for its devices."""
    site = Site(THEIRS)

    site.release()

    assert (site.lock, site.writes) == (THEIRS, 0)


@pytest.mark.parametrize("act", [Site.take, Site.release])
def test_a_node_that_others_write_is_read_again(act: Callable[[Site], object]) -> None:
    """Kubelet writes to its Node all the time, and a lock that stays would block the node."""
    site = Site("" if act is Site.take else MINE)
    site.others_write(2)

    act(site)

    assert (site.lock, site.writes) == (MINE if act is Site.take else "", 3)


def test_a_lock_that_could_not_be_written_is_not_held() -> None:
    """Two pods would start at once, and get each other's devices."""
    site = Site()
    site.others_write(10 * ATTEMPTS)

    assert not site.take()
    assert (site.lock, site.writes) == ("", ATTEMPTS)


def test_a_fresh_lock_of_its_own_is_not_written_again() -> None:
    """A scheduler may retry often."""
    site = Site(MINE)

    assert site.take()
    assert site.writes == 0


@pytest.mark.parametrize(
    ("state", "taken"),
    [({"terminated": {}}, True), ({"running": {}}, True), ({"waiting": {}}, False), ({}, False)],
)
def test_a_pod_has_its_devices_once_its_first_init_container_ran(
    state: Json, *, taken: bool
) -> None:
    """Kubelet has asked the plugin for all its containers by then."""
    site = Site(THEIRS)
    site.add_other({"phase": "Pending", "initContainerStatuses": [{"state": state}]})

    assert site.take() is taken
    assert site.lock == (MINE if taken else THEIRS)


def test_a_node_without_a_lock_is_not_written() -> None:
    """There is nothing to release."""
    site = Site()

    assert not asyncio.run(site.locks.release_if_stale("n0"))
    assert site.writes == 0


def test_an_old_lock_of_its_own_is_renewed_while_the_pod_waits() -> None:
    """Otherwise it would end before the plugin has served the pod, and another one take it."""
    site = Site(MINE)
    metadata = {"name": "p", "annotations": {PHASE_KEY: "allocating"}}
    site.client.put(PODS, {"metadata": metadata, "spec": {"nodeName": "n0"}, "status": {}})
    site.clock.now += REFRESH_AFTER.total_seconds()

    assert site.take()
    assert site.writes == 1
    assert site.lock not in {MINE, ""}
    assert site.lock.endswith(",team-a,p")


@pytest.mark.parametrize("act", [Site.take, Site.release])
def test_a_node_that_is_always_written_is_given_up(act: Callable[[Site], object]) -> None:
    """After some attempts with pauses; a lock that stays is released by the leader."""
    site = Site("" if act is Site.take else MINE)
    site.others_write(10 * ATTEMPTS)

    act(site)

    assert site.writes == ATTEMPTS
    assert len(site.clock.slept) == ATTEMPTS


@pytest.mark.parametrize("annotations", [None, {}])
def test_a_node_without_annotations_has_no_lock(annotations: object) -> None:
    """The API server may leave out the field, or write it as null."""
    site = Site()
    site.client.read(NODE)["metadata"]["annotations"] = annotations

    assert not asyncio.run(site.locks.release_if_stale("n0"))
    site.release()
    assert site.writes == 0
    assert site.take()
    assert site.lock == MINE


@pytest.mark.parametrize("status", [{"state": None}, {}])
def test_a_container_without_a_state_has_not_started(status: Json) -> None:
    """Its pod still waits for its devices."""
    site = Site(THEIRS)
    site.add_other({"phase": "Pending", "initContainerStatuses": [status]})

    assert not site.take()


def test_the_log_says_who_holds_a_lock() -> None:
    """And that it was released."""
    site = Site()
    with capture_logs() as logs:
        site.take()
        site.release()

    assert [(line["node"], line["lock"]) for line in logs] == [("n0", MINE), ("n0", "")]
