"""Pacing: which containers have computed beyond their promise, and wait until that is made up for.

The library slows a container by the number of blocks that it launches. That holds kernels of many
short blocks. Kernels of few long ones, such as PyTorch's matrix products, run at full pace from a
pool of blocks that lasts for seconds, and each refill lasts for more than one. So the agent adds up
what the driver sees, and holds all launches of such a container back for whole looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from agent.region.feedback import SWITCH_READ_AT_EVERY_LAUNCH, SharingContainer

# Percent of a GPU times seconds beyond the promise, until the agent steps in: the library may yet.
PATIENCE: Final = 300.0
LONGEST_WAIT: Final = 10.0  # seconds that launches wait at a time
CALM_SECONDS: Final = 60.0  # without waiting, after which a container is left to the library again
LONGEST_LOOK: Final = 3.0  # seconds that one look may stand for
# The driver's figure is an average of two seconds, and kernels that were launched run to their end.
UNHELD_LOOKS: Final = 5  # in which a container waits and computes, until it cannot be held
TOLERANCE: Final = 15  # percent of a GPU above the promise


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAccount:
    """What one container has used beyond its promise, at one moment."""

    at: float  # Unix seconds
    beyond: float = 0.0  # percent of a GPU times seconds; never less than nothing
    waits: bool = False  # whether its launches wait now
    waited_at: float | None = None  # when they waited last; None: the library is trusted
    unheld: int = 0  # looks in a row at which it computed though it waited


@dataclass(frozen=True, slots=True)
class ComputeAccounts:
    """The accounts of all containers with a compute limit."""

    by_key: Mapping[str, ComputeAccount] = field(default_factory=lambda: MappingProxyType({}))

    def advance(self, containers: Mapping[str, SharingContainer], now: float) -> "ComputeAccounts":
        """Return the accounts at *now*, in Unix seconds; a new container begins with nothing."""
        accounts = {}
        for key, container in containers.items():
            promise = container.cores
            if promise is None or container.region.layout.name in SWITCH_READ_AT_EVERY_LAUNCH:
                continue
            account = self.by_key.get(key) or ComputeAccount(at=now)
            accounts[key] = _advance(account, now, promise=promise, used=container.utilization)
        return ComputeAccounts(accounts)

    @property
    def waiting(self) -> frozenset[str]:
        """Return the containers whose launches are to wait."""
        return frozenset(key for key, account in self.by_key.items() if account.waits)

    @property
    def unheld(self) -> frozenset[str]:
        """Return the containers that compute on although their launches wait."""
        accounts = self.by_key.items()
        return frozenset(key for key, account in accounts if account.unheld >= UNHELD_LOOKS)


def _advance(
    account: ComputeAccount, now: float, *, promise: int, used: int | None
) -> ComputeAccount:
    """Return the account after a look at *now*, at which the driver told *used* percent."""
    waited_at = account.waited_at
    if used is None:  # nobody waits for what is not known: a driver may be silent for long
        return ComputeAccount(at=now, beyond=account.beyond, waited_at=waited_at)
    elapsed = min(max(now - account.at, 0.0), LONGEST_LOOK)  # the clock may have been set
    beyond = max(0.0, account.beyond + (used - promise) * elapsed)
    trusted = waited_at is None or now - waited_at > CALM_SECONDS
    if trusted and beyond < PATIENCE:
        return ComputeAccount(at=now, beyond=beyond)
    beyond = min(beyond, promise * LONGEST_WAIT)
    still_computes = account.waits and used > promise + TOLERANCE
    # Not for less than is made up for until the next look.
    waits = beyond > 0 and beyond >= promise * elapsed
    return ComputeAccount(
        at=now,
        beyond=beyond,
        waits=waits,
        waited_at=now if waits else waited_at,
        unheld=account.unheld + 1 if still_computes else 0,
    )
