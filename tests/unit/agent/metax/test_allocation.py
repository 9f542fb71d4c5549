"""Allocation: a container gets the next list of its pod's annotation, or nothing and a reason."""

import json

import pytest

from agent.metax.allocation import AllocationError, LockedPod, NextDevices, next_devices
from allocator.metax.names import ALLOCATED_KEY


def locked(*containers: list[str], node: str = "n", text: str | None = None) -> LockedPod:
    """Return a pod whose *containers* were given GPUs of these UUIDs."""
    lists = [[{"uuid": uuid, "compute": 60} for uuid in uuids] for uuids in containers]
    notes = {ALLOCATED_KEY: json.dumps(lists) if text is None else text}
    return LockedPod(uid="u", node=node, annotations=notes)


def test_containers_are_served_in_their_order() -> None:
    """Those without GPUs are passed over; the last one is known to be the last."""
    pod = locked([], ["a", "b"], [], ["c"], [])

    assert next_devices(pod, node="n", served=0, count=2) == NextDevices(
        uuids=("a", "b"), is_last=False
    )
    assert next_devices(pod, node="n", served=1, count=1) == NextDevices(uuids=("c",), is_last=True)


@pytest.mark.parametrize(
    ("pod", "served", "count", "why"),
    [
        (locked(["a"]), 0, 2, "2 asked for, 1 given"),
        (locked(["a"]), 1, 1, "for 1 containers, not for more"),
        (locked(["a"], node="other"), 0, 1, "bound to other"),
        (locked(["a"], node=""), 0, 1, "not bound"),
        (LockedPod(uid="u", node="n", annotations={}), 0, 1, "for 0 containers"),
        *(
            (locked(text=text), 0, 1, "for 0 containers")
            for text in (
                "",
                "[",
                "{}",
                "[[1]]",
                '[["GPU-a"]]',
                '[[{"uuid": 7}]]',
                '[{"uuid": "a"}]',
                '[[{"compute": 60}]]',
                "[[null]]",
                "[" * 5000,
                '[[{"uuid": "a", "compute": "x"}]]',
            )
        ),
    ],
)
def test_a_container_that_was_given_nothing_is_told_why(
    pod: LockedPod, served: int, *, count: int, why: str
) -> None:
    """Whatever the annotation holds, nothing of it is guessed."""
    with pytest.raises(AllocationError, match=why):
        next_devices(pod, node="n", served=served, count=count)
