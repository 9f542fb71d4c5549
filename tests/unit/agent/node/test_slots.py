"""Slots: as many as are offered, as many sound ones as healthy GPUs bring, one message's worth."""

from hypothesis import given
from hypothesis import strategies as st

from agent.node.slots import MOST_SLOTS, SlotOffer, is_slot, list_slots, slot_name
from agent.proto import deviceplugin_pb2 as pb

offers = st.builds(
    SlotOffer, total=st.integers(min_value=-1, max_value=40), healthy=st.integers(-1, max_value=40)
)
used = st.frozensets(st.integers(min_value=0, max_value=60).map(slot_name), max_size=20)


@given(offers, used)
def test_every_slot_is_listed_once(offer: SlotOffer, used: frozenset[str]) -> None:
    """What is offered is there, what is in use stays, and nothing else is named."""
    names = [name for name, _ in list_slots(offer, used)]

    assert len(names) == len(set(names))
    assert set(names) == {slot_name(i) for i in range(offer.total)} | used
    assert all(map(is_slot, names))


@given(offers, used)
def test_sick_gpus_take_free_slots_first(offer: SlotOffer, used: frozenset[str]) -> None:
    """A used slot is unsound only where no free one is left to take in its place."""
    slots = dict(list_slots(offer, used))
    offered = {slot_name(i) for i in range(offer.total)}
    sound = {name for name, is_sound in slots.items() if is_sound}

    assert len(sound) == max(0, min(offer.healthy, offer.total))
    assert sound <= offered
    assert not (sound - used) or (used & offered) <= sound


def test_the_longest_list_fits_into_one_message() -> None:
    """Kubelet hangs up on a message of more than 4 MiB, and the node would offer nothing."""
    everything = list_slots(SlotOffer(total=10 * MOST_SLOTS, healthy=0), frozenset())
    devices = [pb.Device(ID=name, health="Unhealthy") for name, _ in everything]
    message = pb.ListAndWatchResponse(devices=devices)

    assert len(everything) == MOST_SLOTS
    assert message.ByteSize() <= 4 * 1024 * 1024


def test_what_could_leave_a_folder_is_no_slot() -> None:
    """Ids become names of files."""
    for name in (
        "",
        "slot-1",
        "slot-0001\n",
        "../slot-0001",
        "slot-0001/..",
        "slot-\u0660\u0661\u0662\u0663",
    ):
        assert not is_slot(name)
