"""The cards of a node in mode sgpu are read one by one, and hostile text costs nothing."""

import json

import pytest

from allocator.metax.cards import (
    MOST_CARDS,
    MOST_SHARES,
    MetaxCard,
    decode_cards,
    encode_cards,
)

A = {
    "uuid": "GPU-a",
    "model": "C500",
    "totalDevCount": 16,
    "totalCompute": 100,
    "totalVRam": 65536,
    "healthy": True,
    "linkZone": 1,
}
B = {**A, "uuid": "GPU-b"}


def card(uuid: str = "GPU-a", **changes: object) -> MetaxCard:
    """Return the card of :data:`A` under another name."""
    fields = {"model": "C500", "shares": 16, "memory": 65536, "healthy": True, "numa": 0, "zone": 1}
    return MetaxCard(uuid=uuid, **{**fields, **changes})  # type: ignore[arg-type]  # of the test


def test_cards_are_read_as_they_are_published() -> None:
    """Two cards in one link zone, in the order of the annotation."""
    decoded = decode_cards(json.dumps([A, B]))

    assert decoded.cards == (card("GPU-a"), card("GPU-b"))
    assert decoded.problems == ()


def test_what_is_written_is_what_was_read() -> None:
    """The simulated device plugin writes what the inventory reads."""
    cards = (card("GPU-a"), card("GPU-b", healthy=False, zone=None, numa=1))

    assert decode_cards(encode_cards(cards)).cards == cards


def test_a_card_that_says_nothing_of_its_health_is_unhealthy() -> None:
    """Its writer leaves out what is false."""
    silent = {key: value for key, value in A.items() if key != "healthy"}

    assert decode_cards(json.dumps([silent])).cards == (card(healthy=False),)


@pytest.mark.parametrize(("numa", "zone"), [(-1, 0), (-1, -7)])
def test_no_numa_node_and_no_zone_are_told_by_numbers_below_one(numa: int, zone: int) -> None:
    """Linux says -1 for no NUMA node; a zone that is not positive links nothing."""
    decoded = decode_cards(json.dumps([{**A, "numa": numa, "linkZone": zone}]))

    assert decoded.cards == (card(numa=None, zone=None),)


def test_unread_fields_may_hold_anything() -> None:
    """What is free is counted here, and fields of a newer plugin are its own."""
    more = {**A, "availableVRam": -5, "bdf": None, "new": {"deep": [[[[]]]]}}

    assert decode_cards(json.dumps([more])).cards == (card(),)


@pytest.mark.parametrize(
    "changes",
    [
        {"totalVRam": -1},
        {"totalVRam": 0},
        {"totalVRam": 2**31},
        {"totalVRam": 1e3},
        {"totalVRam": "65536"},
        {"totalDevCount": -16},
        {"totalDevCount": 0},
        {"totalDevCount": 1025},
        {"totalDevCount": True},
        {"totalCompute": 50},
        {"totalCompute": -100},
        {"linkZone": 2**40},
        {"healthy": "true"},
        {"healthy": 1},
        {"uuid": ""},
        {"uuid": "a,b"},
        {"uuid": "a;b:c"},
        {"uuid": "x" * 97},
        {"uuid": "\u001b[31m"},
        {"uuid": None},
        {"uuid": ["GPU-a"]},
    ],
)
def test_one_bad_card_spoils_no_other(changes: dict[str, object]) -> None:
    """It is left out and told, by its place, in a line that a terminal shows as it is."""
    decoded = decode_cards(json.dumps([{**A, **changes}, B]))

    assert decoded.cards == (card("GPU-b"),)
    (problem,) = decoded.problems
    assert problem.path == "metax-tech.com/node-gpu-devices[0]"
    assert str(problem).isprintable()
    assert len(str(problem)) < 512


def test_a_hostile_model_is_not_shown() -> None:
    """The card is good all the same."""
    decoded = decode_cards(json.dumps([{**A, "model": "C500\u202e\n"}]))

    assert decoded.cards == (card(model=""),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        '"GPU-a"',
        "[",
        "[1e999999]]",
        "[" * 5000,
        json.dumps([A, A]),
        json.dumps([A] + [{**A, "uuid": f"GPU-{n}"} for n in range(64)]),
        json.dumps([{**A, "model": "x" * 70_000}]),
        "\ud800",
        "[{}]" * 2,
    ],
)
def test_an_annotation_in_doubt_gives_no_card(text: str) -> None:
    """Twice one UUID, too many cards, too long, or no list at all."""
    decoded = decode_cards(text)

    assert decoded.cards == ()
    assert decoded.problems
    assert all(len(str(problem)) < 512 for problem in decoded.problems)


def test_a_card_without_numa_node_and_zone_is_written_with_zeros() -> None:
    """As MetaX's plugin writes them."""
    [written] = json.loads(encode_cards([card(numa=None, zone=None)]))

    assert (written.get("numa", 0), written.get("linkZone", 0)) == (0, 0)
    assert len(decode_cards(encode_cards([card(numa=None)])).cards) == 1


def test_as_many_cards_shares_and_characters_as_are_accepted() -> None:
    """One more of each is too many."""

    def read(count: int, *, shares: int = 16, characters: int = 0) -> int:
        cards = [{**A, "uuid": f"GPU-{number}", "totalDevCount": shares} for number in range(count)]
        return len(decode_cards(json.dumps(cards).ljust(characters)).cards)

    assert (read(MOST_CARDS), read(MOST_CARDS + 1)) == (MOST_CARDS, 0)
    assert (read(1, shares=MOST_SHARES), read(1, shares=MOST_SHARES + 1)) == (1, 0)
    assert (read(1, characters=2**16), read(1, characters=2**16 + 1)) == (1, 0)


def test_what_is_wrong_with_a_card_is_told_in_part() -> None:
    """Names of fields come from strangers, too."""
    decoded = decode_cards(json.dumps([{**A, "totalVRam": "x"}, B]))

    assert decoded.cards == (card("GPU-b"),)
    [problem] = decoded.problems
    assert "totalVRam" in str(problem)
    assert "`" not in str(problem)
