"""A made-up family of GPUs, ``acme``, whose own device plugin serves its nodes.

It reads and writes annotations of its own, as a family that is added to the product does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from allocator.families.family import (
    BoundPod,
    Family,
    InventoryFacts,
    LinkDistances,
    NodeInventory,
    ReadInventory,
)
from allocator.families.registry import FAMILIES
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Problem
from allocator.model.request import Mode, Vocabulary
from allocator.model.units import MiB

CARDS: Final = "acme.example/cards"
GIVEN: Final = "acme.example/given"
CHIP: Final = "acme.example/chip"
CHIP_MEMORY: Final = "acme.example/chip-mib"
ACME_WORDS: Final = Vocabulary(
    name="acme",
    count=CHIP,
    memory=CHIP_MEMORY,
    mode_key="acme.example/mode",
    named_modes=(Mode.HAMI_CORE,),
    family="acme",
    prefixes=("acme.example/",),
    slot=CHIP,
)


def read(facts: InventoryFacts) -> ReadInventory:
    """Read ``{"id": MiB}`` for each card."""
    try:
        cards = json.loads(facts.annotations[CARDS])
    except ValueError:
        return ReadInventory(None, (Problem(path=CARDS, what="no JSON", accepted="cards"),))
    gpus = tuple(
        Gpu(
            uuid=name,
            index=index,
            model="ACME 1",
            memory=MiB(memory),
            mode=Mode.HAMI_CORE,
            slots=4,
            family="acme",
        )
        for index, (name, memory) in enumerate(cards.items())
    )
    return ReadInventory(Node(name=facts.name, gpus=gpus))


def write(bound: BoundPod) -> Mapping[str, str]:
    """Name the cards of each container."""
    given = {c.name: [grant.gpu for grant in c.grants] for c in bound.assignment.containers}
    return {GIVEN: json.dumps(given)}


def distances(gpus: Sequence[Gpu]) -> LinkDistances:
    """Neighbours by index are closest: cards 0 and 1 are joined, and 2 and 3."""
    rows = tuple(tuple(0 if a.index // 2 == b.index // 2 else 8 for b in gpus) for a in gpus)
    return LinkDistances(tuple(range(len(gpus))), rows)


ACME: Final = Family(
    name="acme",
    gpu_modes=(Mode.HAMI_CORE,),
    default_modes=(Mode.HAMI_CORE,),
    inventory=NodeInventory(annotations=(CARDS,), read=read),
    binding_annotations=write,
    link_distances=distances,
)


@contextmanager
def known_family() -> Iterator[None]:
    """Have the product know the family for a while."""
    FAMILIES[ACME.name] = ACME
    try:
        yield
    finally:
        del FAMILIES[ACME.name]
