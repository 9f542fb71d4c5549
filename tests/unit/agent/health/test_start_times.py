"""The time from a pod's admission to its first container: once for each pod, by its mode."""

import json
from collections.abc import Mapping

import pytest

from agent.health.start_times import StartTimes
from agent.node.pods import NodePod, parse_pod
from agent.share import Owner, Share
from allocator.model.allocation import Grant
from tests.builders.model import mig_grant, soft_grant

CREATED = "2026-11-21T12:00:00Z"
SOFT, CUT = soft_grant(3000), mig_grant("1g.5gb", 0)


def pod(
    uid: str = "u",
    *,
    created: object = CREATED,
    main: Mapping[str, object] | None = None,
    init: Mapping[str, object] | None = None,
) -> NodePod:
    """Return a pod whose containers are in these states."""
    statuses = {"containerStatuses": main, "initContainerStatuses": init}
    written = {
        "metadata": {"uid": uid, "name": uid, "namespace": "n", "creationTimestamp": created},
        "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "init"}]},
        "status": {
            key: [
                {
                    "name": key.removesuffix("ContainerStatuses") if "init" in key else "main",
                    "state": state,
                }
            ]
            for key, state in statuses.items()
            if state is not None
        },
    }
    return parse_pod(json.dumps(written).encode())


def running(at: object) -> Mapping[str, object]:
    return {"running": {"startedAt": at}}


def share(*grants: Grant, uid: str = "u", containers: tuple[str, ...] = ("main",)) -> Share:
    owner = Owner(uid=uid, namespace="n", pod=uid, containers=containers)
    return Share(owner=owner, grants=grants, key="c0")


class Counts(list[tuple[str, float]]):
    """What was counted, of an agent that has looked once before."""

    def __init__(self) -> None:
        super().__init__()
        self.times = StartTimes(lambda mode, seconds: self.append((mode, seconds)))
        self.times.observe((), {})

    def look(self, *pods: NodePod, shares: tuple[Share, ...] = (share(SOFT),)) -> None:
        self.times.observe(shares, {one.uid: one for one in pods})


def test_a_pod_is_counted_once_it_runs() -> None:
    """Neither before nor again."""
    counts = Counts()

    counts.look(pod())
    counts.look(pod(main={"waiting": {"reason": "ContainerCreating"}}))
    assert counts == []
    for _ in range(2):
        counts.look(pod(main=running("2026-11-21T12:01:30Z")))

    assert counts == [("hami-core", 90.0)]


def test_a_pod_that_ended_between_two_looks_is_counted() -> None:
    """A short job has run too."""
    counts = Counts()

    counts.look(pod(main={"terminated": {"exitCode": 0, "startedAt": "2026-11-21T12:00:05Z"}}))

    assert counts == [("hami-core", 5.0)]


def test_the_first_container_with_a_share_counts() -> None:
    """An init container may hold a GPU; one without a share is nobody's concern."""
    counts, later = Counts(), running("2026-11-21T12:09:00Z")
    both = share(CUT, containers=("init", "main"))

    counts.look(pod(init=running("2026-11-21T12:00:10Z")))
    assert counts == []
    counts.look(pod(init=running("2026-11-21T12:00:10Z"), main=later), shares=(both, share(SOFT)))

    assert counts == [("mig", 10.0)]


def test_what_ran_before_is_not_counted_again() -> None:
    """Another agent may have counted it; the next pod of that name is another one."""
    counts: list[tuple[str, float]] = []
    times = StartTimes(lambda mode, seconds: counts.append((mode, seconds)))
    old = pod(main=running("2026-11-21T12:00:01Z"))
    new = pod("v", main=running("2026-11-21T12:00:02Z"))

    times.observe((share(SOFT),), {"u": old})
    times.observe((share(SOFT), share(SOFT, uid="v")), {"u": old, "v": new})

    assert counts == [("hami-core", 2.0)]


def test_pods_that_are_gone_are_forgotten() -> None:
    """What is remembered is bounded by the pods of the node."""
    counts = Counts()
    for number in range(200):
        uid = f"u{number}"
        counts.look(pod(uid, main=running(CREATED)), shares=(share(SOFT, uid=uid),))

    assert len(counts) == 200
    assert len(counts.times._seen) == 1  # noqa: SLF001 -- what is held, which no method tells


@pytest.mark.parametrize(
    "at",
    [
        *(None, "", "yesterday", "2026-11-21", "2026-11-21T12:00:00", "x" * 9999, "\x00"),
        *("9999-12-31T23:59:60Z", "0000-00-00T00:00:00Z", "2026-11-21T12:00:00+99:00", "-1"),
    ],
)
def test_a_time_that_is_none_counts_nothing(at: str | None) -> None:
    """And it hides no pod: everything else about it is read."""
    counts = Counts()

    counts.look(pod(created=at, main=running(CREATED)))
    assert counts == []
    found = pod(main=running(at))
    counts.look(found)

    assert counts == []
    assert found.container("main").running  # type: ignore[union-attr]  # it has one


def test_clocks_that_disagree_make_no_negative_time() -> None:
    """The node's clock may be behind."""
    counts = Counts()

    counts.look(pod(main=running("2026-11-21T11:59:58Z")))

    assert counts == [("hami-core", 0.0)]
