"""Plan: the next step by which one GPU enters mode mps, serves in it, and leaves it.

A GPU enters the mode when nothing runs on it, and leaves it when nobody has an entry there. While
it is in the mode its compute mode is EXCLUSIVE_PROCESS: a client that misses the daemon fails
instead of running beside it without limits. Each step may be repeated, so after a crash the agent
looks and goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from agent.driver.driver import ComputeMode, Fault
from agent.mps.commands import ServerState
from agent.mps.limits import NOBODY, ServerLimits
from agent.mps.partitions.plan import Held

FAULT_GRACE: Final = 10.0  # seconds in FAULT after which the clients that linger are terminated
FAULT_LIMIT: Final = 60.0  # seconds in FAULT after which the daemon is killed
LINGER_LIMIT: Final = 30.0  # seconds for which clients without an entry may go on
GIVE_UP: Final = 60.0  # seconds for which an uninstall waits for a driver that does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsServer:
    """A server of a daemon."""

    pid: int
    state: ServerState
    clients: tuple[int, ...] = ()  # pids


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsObservation:
    """One GPU and its daemon as they are."""

    compute: ComputeMode
    alive: bool = False  # the daemon's process exists
    why_silent: str = ""  # why it does not answer although it is alive; empty: it answers
    servers: tuple[MpsServer, ...] = ()
    static: bool = False  # the daemon has partitions
    refusal: str = ""  # what a server last logged of a client too many; empty: of none
    # processes on the GPU that are no servers and no clients of the daemon
    strangers: tuple[int, ...] = ()

    @property
    def clients(self) -> tuple[int, ...]:
        """Return the pids of all clients."""
        return tuple(client for server in self.servers for client in server.clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsDesired:
    """What one GPU is to be."""

    mps: bool = False  # in the mode, because of the configuration or of an entry
    limits: ServerLimits = NOBODY
    others: bool = False  # entries of another mode stand on the GPU
    static: bool = False  # its clients get partitions
    unable: str = ""  # why it cannot be as it is configured; empty: it can
    uninstalling: bool = False  # the agent leaves the node for good


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsMemory:
    """What the agent remembers of one GPU between two looks."""

    before: ComputeMode | None = None  # to be put back, from the journal; None: the GPU is not ours
    # what the daemon and each server of it were told since they started
    daemon_limits: ServerLimits | None = None
    server_limits: Mapping[int, ServerLimits] = field(default_factory=lambda: MappingProxyType({}))
    fault_since: float | None = None  # monotonic seconds
    leaving_since: float | None = None  # since when it is to leave the mode
    refused_quit: bool = False  # the daemon was told to quit, and did not
    refused_since: float | None = None  # since when the driver has refused every look


@dataclass(frozen=True, slots=True)
class RecordMode:
    """Write the compute mode that is to be put back into the journal."""

    before: ComputeMode


@dataclass(frozen=True, slots=True)
class SetMode:
    """Set the compute mode."""

    mode: ComputeMode


@dataclass(frozen=True, slots=True)
class StartDaemon:
    """Start the daemon, with partitions if *static*."""

    static: bool = False


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Tell the daemon, and the servers that run, what a client may use."""

    limits: ServerLimits
    servers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartServer:
    """Start the server: until there is one, any process may take the GPU for itself."""


@dataclass(frozen=True, slots=True)
class TerminateClients:
    """End the work of clients, so that the server recovers or the GPU can leave the mode."""

    clients: tuple[tuple[int, int], ...]  # pids of the server and of the client
    why: str


@dataclass(frozen=True, slots=True)
class QuitDaemon:
    """Ask the daemon to end, with its servers."""


@dataclass(frozen=True, slots=True)
class KillDaemon:
    """Kill the daemon and its servers."""

    why: str


@dataclass(frozen=True, slots=True)
class ForgetMode:
    """Take the GPU out of the journal: its compute mode was put back."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing to do now, and why the GPU is not ready."""

    why: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The GPU takes clients under *limits*."""

    limits: ServerLimits


@dataclass(frozen=True, slots=True)
class MpsIdle:
    """The GPU is not in mode mps, and nothing of ours is left on it."""


MpsStep = (
    RecordMode | SetMode | StartDaemon | SetLimits | StartServer | TerminateClients | QuitDaemon
    | KillDaemon | ForgetMode
)  # fmt: skip
MpsRest = Waiting | Ready | MpsIdle


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsProgress:
    """How far one GPU is, as it was last seen."""

    rest: MpsRest = field(default_factory=lambda: Waiting("the agent has not looked at it yet"))
    failures: int = 0  # starts in a row that failed, or that did not last
    servers: tuple[int, ...] = ()  # pids
    clients: int = 0  # connected now
    most_clients: int = 0  # ever connected at once
    refused: bool = False  # a client, because there were too many
    chunks: int = 0  # into which its compute is divided; 0: it is not, or nobody has asked yet
    # why containers that start have no partition yet, by holder
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    held: Held = field(default_factory=lambda: MappingProxyType({}))  # partitions by holder
    served: int = 0  # starts whose partitions were looked after


def memory_after(
    memory: MpsMemory,
    seen: MpsObservation,
    desired: MpsDesired,
    *,
    before: ComputeMode | None,
    now: float,
) -> MpsMemory:
    """Return *memory* after a look: what is over is forgotten, what begins is dated."""
    pids = {server.pid for server in seen.servers}
    faulty = any(server.state is ServerState.FAULT for server in seen.servers)
    told = memory.server_limits
    return replace(
        memory,
        before=before,
        daemon_limits=memory.daemon_limits if seen.alive else None,
        server_limits={pid: limits for pid, limits in told.items() if pid in pids},
        fault_since=(memory.fault_since or now) if faulty else None,
        leaving_since=None if desired.mps else memory.leaving_since or now,
        refused_quit=memory.refused_quit and seen.alive,
        refused_since=None,
    )


def is_given_up(fault: Fault, wanted: MpsDesired, *, loaded: bool, lasted: float) -> bool:
    """Say whether a GPU is left as it is, because the driver refuses every call for *fault*.

    Only an uninstall gives up, which must end. A GPU that is not there has no compute mode, and
    without a driver in the kernel (*loaded*) nothing keeps one: it is DEFAULT when the driver comes
    back. One that only does not answer gets some time, of which *lasted* seconds are over.
    """
    if wanted.mps or not wanted.uninstalling:
        return False
    if fault is Fault.ABSENT:
        return True
    return fault in {Fault.LOST, Fault.UNAVAILABLE} and (not loaded or lasted >= GIVE_UP)


def next_step(
    seen: MpsObservation, wanted: MpsDesired, memory: MpsMemory, *, now: float
) -> MpsStep | MpsRest:
    """Return what to do next with one GPU, or in what state it rests; *now* is monotonic."""
    if not wanted.mps:
        return _leave(seen, memory, now=now)
    if why := "pods of another mode have entries on it" if wanted.others else wanted.unable:
        return Waiting(why)
    if memory.before is None or seen.compute is not ComputeMode.EXCLUSIVE_PROCESS:
        return _enter(seen, memory)
    if not seen.alive:
        return StartDaemon(wanted.static)
    return Waiting(seen.why_silent) if seen.why_silent else _serve(seen, wanted, memory, now=now)


def _change_partitioning(seen: MpsObservation, memory: MpsMemory) -> MpsStep | MpsRest:
    """Return the next step to a daemon that is started with or without static partitioning.

    No daemon can be changed while it runs, and its clients end with it.
    """
    if seen.clients:
        return Waiting("processes are connected to a daemon of another partitioning")
    return KillDaemon("it does not quit") if memory.refused_quit else QuitDaemon()


def _serve(
    seen: MpsObservation, wanted: MpsDesired, memory: MpsMemory, *, now: float
) -> MpsStep | MpsRest:
    """Return the next step of a GPU in the mode whose daemon answers."""
    if seen.static is not wanted.static:
        return _change_partitioning(seen, memory)
    faulty = [server for server in seen.servers if server.state is ServerState.FAULT]
    if faulty:
        return _recover(faulty, memory, now=now)
    pids = tuple(server.pid for server in seen.servers)
    stale = tuple(pid for pid in pids if memory.server_limits.get(pid) != wanted.limits)
    if stale or memory.daemon_limits != wanted.limits:
        return SetLimits(wanted.limits, stale)
    if not pids:
        return StartServer()
    if all(server.state is not ServerState.ACTIVE for server in seen.servers):
        return Waiting("its MPS server is starting")
    return Ready(wanted.limits)


def _enter(seen: MpsObservation, memory: MpsMemory) -> MpsStep | MpsRest:
    if seen.strangers:
        pids = ", ".join(map(str, seen.strangers[:4]))
        return Waiting(f"processes that are not clients of its daemon run on it (pid {pids})")
    if memory.before is None:
        if seen.compute is ComputeMode.PROHIBITED:
            return Waiting("its compute mode is PROHIBITED, which somebody else has set")
        return RecordMode(seen.compute)
    return SetMode(ComputeMode.EXCLUSIVE_PROCESS)


def _recover(faulty: list[MpsServer], memory: MpsMemory, *, now: float) -> MpsStep | MpsRest:
    """Return the next step after a fatal fault of a client, which all clients are told of.

    The server takes no new clients until every client that was hit has ended. A client that ignores
    the error would block the GPU for ever.
    """
    lasted = 0.0 if memory.fault_since is None else now - memory.fault_since
    if lasted >= FAULT_LIMIT:
        return KillDaemon("its server did not recover from a fault of a client")
    clients = tuple((server.pid, client) for server in faulty for client in server.clients)
    if lasted >= FAULT_GRACE and clients:
        return TerminateClients(clients, "they outlive a fault that their server must recover from")
    return Waiting("a client had a fatal fault, and the MPS server recovers from it")


def _leave(seen: MpsObservation, memory: MpsMemory, *, now: float) -> MpsStep | MpsRest:
    """Return the next step out of the mode; a dead daemon does not stop it."""
    if seen.alive:
        clients = tuple((each.pid, client) for each in seen.servers for client in each.clients)
        lasted = 0.0 if memory.leaving_since is None else now - memory.leaving_since
        if clients and lasted < LINGER_LIMIT:
            return Waiting("clients without an entry still run on it")
        if seen.why_silent or memory.refused_quit:
            return KillDaemon("it does not quit")
        return QuitDaemon()
    if memory.before is None:
        return MpsIdle()
    if seen.compute is not memory.before:
        return SetMode(memory.before)
    return ForgetMode()
