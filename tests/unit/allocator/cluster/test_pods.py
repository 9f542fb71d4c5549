"""Pods as controllers look for them: by uid, by node and by what they wait for."""

from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest

from allocator.cluster.pods import Pods, pod_informer
from allocator.request.pod_summary import PodSummary
from tests.builders.bindings import stored
from tests.builders.pods import container, pod

A = PodSummary(uid="a", node="n0", deleting=False, over=False, extended=("x/gpu",))
B = PodSummary(uid="b", node="", deleting=False, over=False, extended=("x/gpu",), group="g")
C = PodSummary(uid="c", node="n0", deleting=False, over=False, group="g")


def uids(pods: Iterable[PodSummary]) -> set[str]:
    return {one.uid for one in pods}


def test_nothing_is_known_before_the_first_list() -> None:
    """An empty list is an answer too."""
    pods = Pods()
    before = pods.by_uid

    pods.update({})

    assert (before, pods.by_uid) == (None, {})


def test_pods_are_found_by_node_and_by_group() -> None:
    """Only those that ask for something are found on a node."""
    pods = Pods()
    pods.update({one.uid: one for one in (A, B, C)})

    assert uids(pods.on_node("n0")) == {"a"}
    assert uids(pods.unbound()) == {"b"}
    assert set(pods.grouped) == {"b", "c"}

    pods.update({"a": None, "b": replace(B, node="n0", group="")})

    assert uids(pods.on_node("n0")) == {"b"}
    assert not pods.unbound()
    assert set(pods.grouped) == {"c"}
    assert set(pods.by_uid or ()) == {"b", "c"}


@pytest.mark.parametrize(
    ("limits", "annotations", "kept"),
    [
        pytest.param({"cpu": 1}, {}, False, id="asks-for-nothing"),
        pytest.param({"x.com/thing": 1}, {}, True, id="asks"),
        pytest.param({"cpu": 1}, {"scheduling.k8s.io/group-name": "g"}, True, id="in-a-gang"),
    ],
)
def test_pods_that_concern_nobody_are_not_kept(
    limits: dict[str, object], annotations: dict[str, str], *, kept: bool
) -> None:
    """Most pods of a cluster ask for processors and memory alone."""
    pods, watch = Pods(), pod_informer()
    pods.follow(watch)
    written = stored(pod(container(limits=limits), annotations=annotations))

    watch.publish({"6a7d-1": watch.decode(orjson.dumps(written))})

    assert bool(pods.by_uid) is kept
