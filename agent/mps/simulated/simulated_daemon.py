"""A daemon of MPS as a value: what ``nvidia-cuda-mps-control`` documents, without a GPU.

It keeps the three scopes of a limit apart: that of the next server, that of the future clients of a
running server, and that of a client that runs, which never changes. A server takes clients of one
user, or of all with ``-M``. Simulated nodes serve mode mps with it, and tests give it faults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from agent.mps.commands import ServerState

_LINE_LIMIT: Final = 512  # characters
_NO_LIMIT: Final = 1 << 40  # MiB
NO_ROOM: Final = "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"
UNKNOWN: Final = "Unknown command"
NO_CHUNKS: Final = "Failed to create the partition: not enough free chunks"
NO_PARTITION: Final = "Failed: no such partition"
IN_USE: Final = "Failed: the partition has clients"
REFUSALS: Final = frozenset({UNKNOWN, NO_CHUNKS, NO_PARTITION, IN_USE})
WRONG_PARTITION: Final = "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"  # what a client gets
CHUNK_SMS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedClient:
    """A client, with what it may use for as long as it runs."""

    pid: int
    memory: int  # MiB
    threads: int
    partition: str = ""  # that it is in
    hit: bool = False  # of a fatal fault, or terminated: it runs nothing any more


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedServer:
    """A server; its limits are those of its next client."""

    pid: int
    memory: int
    threads: int
    state: ServerState = ServerState.ACTIVE
    clients: Mapping[int, SimulatedClient] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDaemon:
    """One daemon; ``memory`` and ``threads`` are those of the next server."""

    next_pid: int
    most_clients: int = 60
    memory: int = _NO_LIMIT
    threads: int = 100
    server: SimulatedServer | None = None
    ended: bool = False
    static: bool = False  # it was started with -S
    chunks: int = 16  # of the GPU, each of CHUNK_SMS multiprocessors
    partitions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    made: int = 0  # partitions ever


def answer(daemon: SimulatedDaemon, line: str) -> tuple[SimulatedDaemon, str]:
    """Return the daemon after one command, and its answer."""
    words = line[:_LINE_LIMIT].split()
    match words:
        case ["start_server", "-uid", _]:
            return start_server(daemon), ""
        case ["get_server_list"]:
            return daemon, "" if daemon.server is None else str(daemon.server.pid)
        case ["lspart"] | ["sm_partition", *_]:
            return _partition_answer(daemon, words)
        case ["quit", *_]:
            return replace(daemon, server=None, ended=True), ""
        case [_, pid, *arguments] if daemon.server and pid == str(daemon.server.pid):
            server, text = _server_answer(daemon.server, words[0], arguments)
            return replace(daemon, server=server), text
        case _:
            return _default_answer(daemon, words)


def _default_answer(daemon: SimulatedDaemon, words: list[str]) -> tuple[SimulatedDaemon, str]:
    """Answer a command about what the next server is given."""
    match words:
        case ["get_default_active_thread_percentage"]:
            return daemon, f"{daemon.threads}.0"
        case ["set_default_active_thread_percentage", text]:
            threads = _number(text)
            return (daemon, UNKNOWN) if threads is None else (replace(daemon, threads=threads), "")
        case ["set_default_device_pinned_mem_limit", "0", text]:
            memory = _memory(text)
            return (daemon, UNKNOWN) if memory is None else (replace(daemon, memory=memory), "")
        case _:
            return daemon, UNKNOWN


def start_server(daemon: SimulatedDaemon) -> SimulatedDaemon:
    """Return the daemon with a server, which has the limits that stand now."""
    if daemon.server is not None:
        return daemon
    server = SimulatedServer(pid=daemon.next_pid, memory=daemon.memory, threads=daemon.threads)
    return replace(daemon, server=server, next_pid=daemon.next_pid + 1)


def connect(
    daemon: SimulatedDaemon,
    pid: int,
    *,
    memory: int | None = None,
    threads: int | None = None,
    partition: str = "",
) -> SimulatedDaemon | str:
    """Return the daemon with a client, or the error that the client gets.

    *memory* and *threads* are what its variables say; they can only lower the server's. With
    static partitioning a client must name its *partition*, and the threads are ignored.
    """
    name = partition.rpartition("/")[2]
    if daemon.static and name not in daemon.partitions:
        return WRONG_PARTITION
    daemon = start_server(daemon)
    server = daemon.server
    if server is None or server.state is not ServerState.ACTIVE:
        return "CUDA_ERROR_MPS_SERVER_NOT_READY"
    if len(server.clients) >= daemon.most_clients:
        return NO_ROOM
    client = SimulatedClient(
        pid=pid,
        memory=min(server.memory, server.memory if memory is None else memory),
        threads=min(server.threads, server.threads if threads is None else threads),
        partition=name if daemon.static else "",
    )
    clients = MappingProxyType({**server.clients, pid: client})
    return replace(daemon, server=replace(server, clients=clients))


def _partition_answer(daemon: SimulatedDaemon, words: list[str]) -> tuple[SimulatedDaemon, str]:
    """Answer a command about partitions, which only a daemon with static partitioning knows."""
    match words:
        case _ if not daemon.static:
            return daemon, UNKNOWN
        case ["lspart"]:
            return daemon, _partition_list(daemon)
        case ["sm_partition", "add", gpu, text] if chunks := _number(text):
            return _with_partition(daemon, gpu, chunks)
        case ["sm_partition", "rm", _, name]:
            return _without_partition(daemon, name)
        case _:
            return daemon, UNKNOWN


def _with_partition(daemon: SimulatedDaemon, gpu: str, chunks: int) -> tuple[SimulatedDaemon, str]:
    if chunks > daemon.chunks - sum(daemon.partitions.values()):
        return daemon, NO_CHUNKS
    name = f"Dx{daemon.made + 1}AAA="
    kept = MappingProxyType({**daemon.partitions, name: chunks})
    return replace(daemon, partitions=kept, made=daemon.made + 1), f"Partition {gpu}/{name} created"


def _without_partition(daemon: SimulatedDaemon, name: str) -> tuple[SimulatedDaemon, str]:
    if name not in daemon.partitions:
        return daemon, NO_PARTITION
    if name in _used_partitions(daemon):
        return daemon, IN_USE
    kept = {each: chunks for each, chunks in daemon.partitions.items() if each != name}
    return replace(daemon, partitions=MappingProxyType(kept)), ""


def _used_partitions(daemon: SimulatedDaemon) -> frozenset[str]:
    server = daemon.server
    return (
        frozenset() if server is None else frozenset(c.partition for c in server.clients.values())
    )


def _partition_list(daemon: SimulatedDaemon) -> str:
    """Return the table of partitions; it names GPUs by the beginning of their UUID."""
    used, total = sum(daemon.partitions.values()), daemon.chunks
    in_use = _used_partitions(daemon)
    heading = (
        "GPU           Partition    free    used    free   used   clients\n"
        "                           chunk   chunk   SM     SM"
    )
    free = total - used
    whole = f"GPU-00000000  -  {free}  {used}  {free * CHUNK_SMS}  {used * CHUNK_SMS}  -"
    rows = [
        f"GPU-00000000  {name}  -  {chunks}  -  {chunks * CHUNK_SMS}  "
        f"{'Yes' if name in in_use else 'No'}"
        for name, chunks in daemon.partitions.items()
    ]
    return "\n".join([heading, whole, *rows])


def disconnect(daemon: SimulatedDaemon, pid: int) -> SimulatedDaemon:
    """Return the daemon after a client ended; a server whose hit clients are all gone recovers."""
    server = daemon.server
    if server is None:
        return daemon
    clients = {each.pid: each for each in server.clients.values() if each.pid != pid}
    recovers = server.state is ServerState.FAULT and not any(c.hit for c in clients.values())
    state = ServerState.ACTIVE if recovers else server.state
    return replace(daemon, server=replace(server, clients=MappingProxyType(clients), state=state))


def fault(daemon: SimulatedDaemon) -> SimulatedDaemon:
    """Return the daemon after a fatal fault of one client, which hits all of them."""
    server = daemon.server
    if server is None:
        return daemon
    clients = {pid: replace(client, hit=True) for pid, client in server.clients.items()}
    server = replace(server, clients=MappingProxyType(clients), state=ServerState.FAULT)
    return replace(daemon, server=server)


def _server_answer(
    server: SimulatedServer, command: str, arguments: list[str]
) -> tuple[SimulatedServer, str]:
    match command, arguments:
        case "get_server_status", []:
            return server, server.state
        case "get_client_list", []:
            return server, "\n".join(map(str, server.clients))
        case "set_active_thread_percentage", [text] if (threads := _number(text)) is not None:
            return replace(server, threads=threads), ""
        case "set_device_pinned_mem_limit", ["0", text] if (memory := _memory(text)) is not None:
            return replace(server, memory=memory), ""
        case "terminate_client", [pid] if pid.isdigit() and int(pid) in server.clients:
            client = replace(server.clients[int(pid)], hit=True)
            clients = MappingProxyType({**server.clients, client.pid: client})
            return replace(server, clients=clients), "0"
        case _:
            return server, UNKNOWN


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len("100") else None


def _memory(text: str) -> int | None:
    number, unit = text[:-1], {"M": 1, "G": 1024}.get(text[-1:])
    plain = number.isascii() and number.isdigit() and len(number) <= len("1000000000")
    return int(number) * unit if plain and unit is not None else None
