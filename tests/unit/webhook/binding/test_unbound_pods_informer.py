"""Pods without a node, as a watch tells of them."""

import orjson
import pytest

from allocator.request.pod_fields import decode_watched
from tests.builders.bindings import stored as kept
from tests.builders.pods import pod
from webhook.binding.unbound_pods_informer import (
    LARGEST_KEPT,
    UnboundPod,
    UnboundPods,
    unbound_of,
)

POD = kept(pod())


def unbound(raw: bytes) -> UnboundPod | None:
    """Return the pod that a watch sends as *raw*, if it has no node."""
    return unbound_of(decode_watched(raw), raw)


def known(*raw: bytes) -> UnboundPods:
    """Return what one hears of these pods from a watch, whose uids are numbers."""
    pending = UnboundPods()
    pending.know({str(number): found for number, found in enumerate(map(unbound, raw))})
    return pending


def test_a_pod_is_known_by_its_place() -> None:
    """The namespace counts, and a later picture is all there is."""
    pending = known(orjson.dumps(POD))

    found = pending.pod("team-a", "p")

    assert found is not None
    assert found.uid == POD["metadata"]["uid"]
    assert pending.pod("team-b", "p") is None
    pending.know({"0": None})
    assert pending.pod("team-a", "p") is None


@pytest.mark.parametrize("together", [True, False])
def test_a_name_that_is_taken_again_is_the_new_pods(*, together: bool) -> None:
    """Whichever of the two is told of first."""
    first, second = (orjson.dumps(kept(pod(), uid=uid)) for uid in ("u-1", "u-2"))
    for order in (["0", "1"], ["1", "0"]):
        pending = known(first)
        found = unbound(second)
        assert found is not None

        changes = {"0": None, "1": found}
        if together:
            pending.know({uid: changes[uid] for uid in order})
        else:
            for uid in order:
                pending.know({uid: changes[uid]})

        live = pending.pod("team-a", "p")
        assert live is not None
        assert live.uid == "u-2"


def test_a_pod_with_a_node_waits_for_none() -> None:
    """A bind of it is asked about past all caches."""
    assert unbound(orjson.dumps(POD | {"spec": {**POD["spec"], "nodeName": "n"}})) is None


def test_nothing_is_known_to_begin_with() -> None:
    """Then every pod is asked for."""
    assert UnboundPods().pod("team-a", "p") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"containers": [{}]}}, id="container-without-name"),
        pytest.param({"metadata": {"uid": "u"}}, id="no-name"),
    ],
)
def test_a_pod_that_cannot_be_read_is_not_known(change: dict[str, object]) -> None:
    """It is asked for, and whoever asks says what is wrong with it."""
    assert known(orjson.dumps(POD | change)).pod("team-a", "p") is None


def test_what_has_no_place_is_no_pod() -> None:
    """The watch notes it and goes on."""
    with pytest.raises(ValueError, match="metadata"):
        unbound(b"{}")


def test_a_large_pod_is_not_kept() -> None:
    """Tenants may create any number of them, and each replica would hold them all."""
    padding = {"padding": "x" * LARGEST_KEPT}
    large = kept(pod(annotations=padding))
    found = unbound(orjson.dumps(large))

    assert found is not None
    assert (found.place, found.raw) == ("team-a/p", b"")
    assert known(orjson.dumps(large)).pod("team-a", "p") is None
