"""Cards: the GPUs of a node in mode sgpu, as MetaX's device plugin publishes them.

The annotation is a JSON array with one object for each card. Whoever may write the Node may write
anything there, so it is bounded, and each card is read by itself.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from allocator.metax.names import CARDS_KEY
from allocator.model.problem import Problem
from allocator.model.untrusted import escaped, parse_untrusted_json, quote

MOST_CARDS: Final = 64  # of one node
MOST_SHARES: Final = 1024  # of one card; MetaX's hardware has 16
WHOLE_COMPUTE: Final = 100  # percent
_MOST_CHARACTERS: Final = 64 * 1024
_UUID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,95}", re.ASCII)
_MODEL: Final = re.compile(r"[ -~]{1,128}", re.ASCII)
_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _CardWire(msgspec.Struct, rename="camel"):
    """One element; a boolean or a number that is zero is left out by its writer."""

    uuid: str
    model: str = ""
    total_dev_count: _Amount = 0
    total_compute: _Amount = 0
    total_v_ram: _Amount = msgspec.field(name="totalVRam", default=0)
    numa: _Int32 = 0
    healthy: bool = False
    qos_policy: str = ""
    link_zone: _Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaxCard:
    """One card of a node in mode sgpu."""

    uuid: str
    model: str  # empty: not told
    shares: int  # that it can be divided into
    memory: int  # MiB
    healthy: bool
    numa: int | None  # NUMA node
    zone: int | None  # MetaXLink group; None: it is linked with no other card


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCards:
    """The cards that could be read, and what was wrong with the annotation."""

    cards: tuple[MetaxCard, ...]
    problems: tuple[Problem, ...] = ()


def decode_cards(text: str) -> NodeCards:
    """Decode the annotation.

    A card that says nothing of its health is unhealthy. A card with a negative or absurd number is
    left out. A UUID that stands there twice spoils the whole, because nobody can say which card a
    grant is on.
    """
    if len(text) > _MOST_CHARACTERS:
        return _nothing(f"{len(text)} characters", f"at most {_MOST_CHARACTERS}")
    value = parse_untrusted_json(text)
    if not isinstance(value, list):
        return _nothing(f"{quote(text)} is not a list", "a JSON array of cards")
    if len(value) > MOST_CARDS:
        return _nothing(f"{len(value)} cards", f"at most {MOST_CARDS}")
    problems: list[Problem] = []
    cards: dict[str, MetaxCard] = {}
    for index, item in enumerate(value):
        card = _card(item)
        if isinstance(card, str):
            problems.append(_problem(f"{CARDS_KEY}[{index}]", card, "a card that can be read"))
        elif card.uuid in cards:
            return _nothing(f"{quote(card.uuid)} twice", "each card once")
        else:
            cards[card.uuid] = card
    return NodeCards(cards=tuple(cards.values()), problems=tuple(problems))


def encode_cards(cards: Iterable[MetaxCard]) -> str:
    """Return the annotation for *cards* as MetaX's plugin writes it."""
    items = [
        _CardWire(
            uuid=card.uuid,
            model=card.model,
            total_dev_count=card.shares,
            total_compute=WHOLE_COMPUTE,
            total_v_ram=card.memory,
            numa=card.numa or 0,
            healthy=card.healthy,
            link_zone=card.zone or 0,
        )
        for card in cards
    ]
    return msgspec.json.encode(items).decode()


def _card(item: object) -> MetaxCard | str:
    """Return the card, or what is wrong with it."""
    try:
        wire = msgspec.convert(item, _CardWire)
    except msgspec.ValidationError as error:
        return escaped(str(error).replace("`", ""), 128)
    if _UUID.fullmatch(wire.uuid) is None:
        return f"uuid {quote(wire.uuid)}"
    if not 1 <= wire.total_dev_count <= MOST_SHARES:
        return f"totalDevCount {wire.total_dev_count} is not from 1 to {MOST_SHARES}"
    if wire.total_compute != WHOLE_COMPUTE:
        return f"totalCompute {wire.total_compute} is not {WHOLE_COMPUTE}"
    if not wire.total_v_ram:
        return "totalVRam is missing or 0"
    return MetaxCard(
        uuid=wire.uuid,
        model=wire.model if _MODEL.fullmatch(wire.model) else "",
        shares=wire.total_dev_count,
        memory=wire.total_v_ram,
        healthy=wire.healthy,
        numa=wire.numa if wire.numa >= 0 else None,
        zone=wire.link_zone if wire.link_zone > 0 else None,
    )


def _nothing(what: str, accepted: str) -> NodeCards:
    return NodeCards(cards=(), problems=(_problem(CARDS_KEY, what, accepted),))


def _problem(path: str, what: str, accepted: str) -> Problem:
    return Problem(path=path, what=what, accepted=accepted)
