"""Options: what one container could get on one GPU."""

from allocator.model.gpu import Grant
from allocator.model.value import Value


class Option(Value, frozen=True, kw_only=True):
    """One grant that a container could get, on the GPU at *position* of the node.

    The lower ``rank`` is the better one; all options of one decision have ranks of one length.
    """

    position: int
    grant: Grant
    rank: tuple[int, ...]
