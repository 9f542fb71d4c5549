"""What MetaX's components write on their Node, and a label that says that they are simulated."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from agent.metax.link_maps import best_scores, least_losses
from agent.metax.machine import MetaxMachine
from allocator.catalog.keys import SIMULATED_LABEL
from allocator.metax.cards import encode_cards
from allocator.metax.names import (
    CARDS_KEY,
    LOSSES_KEY,
    MEMORY_LABEL,
    MODEL_LABEL,
    NODE_ANNOTATIONS,
    NODE_LABELS,
    SCORES_KEY,
)
from allocator.metax.node_modes import NodeMode

_TRUE: Final = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMarks:
    """Annotations and labels of a Node by key; ``None`` stands for one that is not there."""

    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None]

    def changes(
        self, annotations: Mapping[str, str], labels: Mapping[str, str]
    ) -> dict[str, object]:
        """Return the merge patch of the metadata that makes them so; empty where they are."""
        parts = {
            "annotations": _differences(self.annotations, annotations),
            "labels": _differences(self.labels, labels),
        }
        return {part: different for part, different in parts.items() if different}


NO_MARKS: Final = NodeMarks(
    annotations=dict.fromkeys(NODE_ANNOTATIONS),
    labels=dict.fromkeys((*NODE_LABELS, SIMULATED_LABEL)),
)


def node_marks(machine: MetaxMachine, taken: Collection[str]) -> NodeMarks:
    """Return what the Node of *machine* says while containers have the GPUs *taken*, by UUID.

    A node in mode sgpu publishes its cards. A native one has labels for their kind, and says what
    the links between its free and healthy GPUs are worth.
    """
    if machine.mode is NodeMode.SGPU:
        cards = {**NO_MARKS.annotations, CARDS_KEY: encode_cards(machine.cards)}
        return NodeMarks(annotations=cards, labels={**NO_MARKS.labels, SIMULATED_LABEL: _TRUE})
    free = [
        index for index, card in enumerate(machine.cards) if card.healthy and card.uuid not in taken
    ]
    maps = {SCORES_KEY: best_scores(free), LOSSES_KEY: least_losses(free)}
    first = machine.cards[0]
    return NodeMarks(
        annotations={CARDS_KEY: None} | {key: _map_text(values) for key, values in maps.items()},
        labels={
            MODEL_LABEL: first.model,
            MEMORY_LABEL: f"{first.memory // 1024}GB",
            SIMULATED_LABEL: _TRUE,
        },
    )


def _map_text(values: Mapping[int, int]) -> str:
    return json.dumps({str(count): value for count, value in values.items()}, separators=(",", ":"))


def _differences(
    wanted: Mapping[str, str | None], existing: Mapping[str, str]
) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if existing.get(key) != value}
