"""Identity: an owner that both of kubelet's sources and the live pods agree on, or a refusal."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.deviceplugin.identity import ListedContainer, PodName, RecordedContainer, owner_of
from agent.share import NotYetError

TRAIN = PodName("team-a", "train-0")
OTHER = PodName("team-b", "eval-0")
PODS = {"uid-1": TRAIN, "uid-2": OTHER}
SLOTS = frozenset({"slot-0000", "slot-0001"})
MAIN = ListedContainer(name=TRAIN, container="main", slots=SLOTS)
ENTRY = RecordedContainer(uid="uid-1", container="main", slots=SLOTS)


def test_an_app_container_is_known_by_both() -> None:
    """Name and container come from podresources, the uid from the checkpoint."""
    owner = owner_of(SLOTS, listed=[MAIN], recorded=[ENTRY], pods=PODS)

    assert (owner.uid, owner.namespace, owner.pod) == ("uid-1", "team-a", "train-0")
    assert owner.containers == ("main",)


def test_an_init_container_is_known_by_the_checkpoint_alone() -> None:
    """Kubelet lists no init container in podresources: its pod is found by uid."""
    entry = replace(ENTRY, container="warm-up")

    assert owner_of(SLOTS, listed=[], recorded=[entry], pods=PODS).containers == ("warm-up",)


def test_an_init_container_whose_slots_are_used_again_comes_first() -> None:
    """Both are candidates with equal slots, in the order in which they start."""
    entries = [ENTRY, replace(ENTRY, container="warm-up")]

    assert owner_of(SLOTS, listed=[MAIN], recorded=entries, pods=PODS).containers == (
        "warm-up",
        "main",
    )


def test_a_smaller_app_container_beside_is_no_candidate() -> None:
    """An init container's slots show partly under the app container that uses some again."""
    some = frozenset({"slot-0000"})
    entries = [replace(ENTRY, container="warm-up"), replace(ENTRY, slots=some)]
    listed = [replace(MAIN, slots=some)]

    assert owner_of(SLOTS, listed=listed, recorded=entries, pods=PODS).containers == ("warm-up",)
    assert owner_of(some, listed=listed, recorded=entries, pods=PODS).containers == ("main",)


@pytest.mark.parametrize(
    ("listed", "recorded", "said"),
    [
        pytest.param([MAIN], [], "has no container with exactly", id="unrecorded"),
        pytest.param([], [], "has no container", id="nobody"),
        pytest.param([MAIN], [ENTRY, replace(ENTRY, uid="uid-2")], "to 2 pods", id="two-uids"),
        pytest.param(
            [MAIN], [replace(ENTRY, slots=SLOTS | {"slot-0002"})], "exactly", id="more-slots"
        ),
        pytest.param(
            [replace(MAIN, name=OTHER)], [ENTRY], "podresources names team-b/eval-0", id="two-pods"
        ),
        pytest.param(
            [MAIN], [replace(ENTRY, uid="uid-2")], "the checkpoint team-b/eval-0", id="stale"
        ),
        pytest.param([MAIN], [replace(ENTRY, uid="uid-3")], "has not sent it", id="no-live-pod"),
        pytest.param(
            [MAIN], [replace(ENTRY, container="side")], "different containers", id="two-names"
        ),
    ],
)
def test_sources_that_disagree_are_refused(
    listed: list[ListedContainer], recorded: list[RecordedContainer], said: str
) -> None:
    """Nobody starts on one source's word against the other's, and the text says what it is."""
    with pytest.raises(NotYetError, match=said):
        owner_of(SLOTS, listed=listed, recorded=recorded, pods=PODS)


slots = st.frozensets(st.sampled_from([f"slot-{i:04d}" for i in range(4)]), min_size=1)
uids = st.sampled_from(["uid-1", "uid-2"])
names = st.sampled_from(["main", "side"])
recordings = st.builds(RecordedContainer, uid=uids, container=names, slots=slots)
listings = st.builds(
    ListedContainer, name=st.sampled_from([TRAIN, OTHER]), container=names, slots=slots
)


@given(st.lists(recordings, max_size=4), st.lists(listings, max_size=4), slots)
def test_an_owner_is_never_contradicted(
    recorded: list[RecordedContainer], listed: list[ListedContainer], wanted: frozenset[str]
) -> None:
    """Whatever kubelet says: who is named holds exactly these slots, and nobody else any."""
    try:
        owner = owner_of(wanted, listed=listed, recorded=recorded, pods=PODS)
    except NotYetError:
        return

    holders = {entry.uid for entry in recorded if entry.slots == wanted}
    assert holders == {owner.uid}
    assert all(entry.name == PODS[owner.uid] for entry in listed if entry.slots & wanted)
    assert set(owner.containers) == {e.container for e in recorded if e.slots == wanted}
