"""Which shapes of boards a fleet is planned with: a bounded number, and new ones slowly.

Each shape needs a table (``allocator.mig.slot_policy``), and a node can describe new ones in every
status that it writes. A node that waits is closed; its GPUs are planned with a little later. So
tables are never built in a loop, whatever nodes write, and honest nodes, whose boards are known or
new once, do not notice.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from allocator.mig.slot_policy import BoardShape, board_facts, shape_of_board
from allocator.model.gpu import Gpu

MOST_SHAPES: Final = 128  # all known boards have two, and boards with broken slots some more
MOST_AT_ONCE: Final = 16  # new ones between two answers, of some 2 ms each
CALM_SECONDS: Final = 60.0  # between new shapes of one node


class FleetShapes:
    """The shapes that are planned with, and the nodes that have them."""

    def __init__(self) -> None:
        """Begin with an empty fleet."""
        self._known: dict[BoardShape, None] = {}  # the oldest first
        self._by_node: dict[str, frozenset[BoardShape]] = {}
        self._users: Counter[BoardShape] = Counter()  # nodes
        self._calm: dict[str, float] = {}  # until when a node brings no new ones, monotonic seconds
        self._left = MOST_AT_ONCE

    def begin(self) -> None:
        """Let a new answer build tables of ``MOST_AT_ONCE`` new shapes."""
        self._left = MOST_AT_ONCE

    def admit(self, name: str, gpus: Iterable[Gpu], *, now: float) -> bool:
        """Say whether the boards of node *name* are planned with; if not, ask again later.

        *now* is monotonic, in seconds. Tables of new shapes are built here.
        """
        self.drop(name)
        boards = {gpu.board for gpu in gpus if gpu.board is not None}
        shapes = frozenset(map(shape_of_board, boards))
        new = shapes - self._known.keys()
        if new and not self._has_room(name, new, shapes, now=now):
            return False
        for shape in new:
            board_facts(shape)
            self._known[shape] = None
        if new:
            self._left -= len(new)
            self._calm[name] = now + CALM_SECONDS
        self._by_node[name] = shapes
        self._users.update(shapes)
        return True

    def drop(self, name: str) -> None:
        """Forget node *name*; its shapes stay known until others need their room."""
        self._users.subtract(self._by_node.pop(name, frozenset()))

    def _has_room(
        self,
        name: str,
        new: frozenset[BoardShape],
        shapes: frozenset[BoardShape],
        *,
        now: float,
    ) -> bool:
        """Say whether *new* shapes may join; unused ones make room, but none of *shapes*."""
        if len(new) > self._left or now < self._calm.get(name, now):
            return False
        self._calm = {node: until for node, until in self._calm.items() if until > now}
        excess = len(self._known) + len(new) - MOST_SHAPES
        unused = [one for one in self._known if not self._users[one] and one not in shapes]
        if excess > len(unused):
            return False
        for shape in unused[: max(0, excess)]:
            del self._known[shape], self._users[shape]
        return True
