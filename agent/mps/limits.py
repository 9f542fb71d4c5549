"""Limits: what the clients of one GPU in mode mps may use, as the driver enforces them.

Two places hold a limit, and the lower counts: the server's, which a program cannot change, and the
one in the variables of its container. The server has one figure for all its clients, so it is the
largest that any of them was promised.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from allocator.model.allocation import Grant
from allocator.model.units import WHOLE_GPU, CorePercent, MiB


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The most that one client process may use of a GPU."""

    memory: MiB
    threads: CorePercent  # percent of the multiprocessors; a cap, not a reservation

    def covers(self, other: "ServerLimits") -> bool:
        """Say whether a client that was promised *other* gets all of it under these limits."""
        return self.memory >= other.memory and self.threads >= other.threads


# Nobody was promised anything: a program that finds the daemon all the same gets next to nothing.
NOBODY: Final = ServerLimits(memory=MiB(1), threads=CorePercent(1))


def client_limits(grant: Grant) -> ServerLimits:
    """Return the limits of the container of *grant*; a grant without cores may use them all."""
    return ServerLimits(memory=grant.memory, threads=grant.cores or WHOLE_GPU)


def server_limits(grants: Iterable[Grant]) -> ServerLimits:
    """Return the limits of a server whose clients hold *grants*: the largest of each amount."""
    limits = [client_limits(grant) for grant in grants]
    return ServerLimits(
        memory=max((each.memory for each in limits), default=NOBODY.memory),
        threads=max((each.threads for each in limits), default=NOBODY.threads),
    )
