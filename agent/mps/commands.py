"""Commands of ``nvidia-cuda-mps-control``, one a line on its standard input, and their answers.

An answer comes from a process that every client of the daemon may talk to, so it is read within
bounds. Reading limits back is lossy on some drivers (whole GiB, rounded down): no limit is ever
verified by comparing it with an answer.
"""

import re
from enum import StrEnum
from typing import Final

from allocator.model.units import CorePercent, MiB
from allocator.model.untrusted import quote

MOST_ANSWER_BYTES: Final = 64 * 1024  # of one answer
MOST_PIDS: Final = 1024  # in one list; a GPU has room for tens of clients
LARGEST_PID: Final = 1 << 22  # PID_MAX_LIMIT of Linux
# The only GPU of a daemon: it is started with one visible device, which it numbers from 0.
DEVICE: Final = 0
SERVER_USER: Final = 0  # a server of many users (-M) belongs to root
SERVER_LIST: Final = "get_server_list"
_LONGEST_LINE: Final = 256  # characters of a log
_CLIENT_TOO_MANY: Final = re.compile(
    r"(?i)MPS_MAX_(?:CLIENTS|CONNECTIONS)_REACHED"
    r"|\bmax(?:imum)?(?: number of)? (?:client|connection|context)s?\b"
    r"|\b(?:client|connection|context)s? limit\b"
)
_PID: Final = re.compile(r"[0-9]{1,7}")


class MpsAnswerError(Exception):
    """The daemon answered something else than the documented form."""


class ServerState(StrEnum):
    """What ``get_server_status`` says of a server."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    FAULT = "FAULT"  # no new clients until every client that was hit has ended


def start_server() -> str:
    """Return the command that starts the server before its first client."""
    return f"start_server -uid {SERVER_USER}"


def server_status(server: int) -> str:
    """Return the command that asks for the state of *server*, a pid."""
    return f"get_server_status {server}"


def client_list(server: int) -> str:
    """Return the command that asks for the pids of the clients of *server*."""
    return f"get_client_list {server}"


def terminate_client(server: int, client: int) -> str:
    """Return the command that ends the work of *client*, which may then be killed safely."""
    return f"terminate_client {server} {client}"


def default_memory(memory: MiB) -> str:
    """Return the command that limits each client of the next server to *memory*."""
    return f"set_default_device_pinned_mem_limit {DEVICE} {memory}M"


def server_memory(server: int, memory: MiB) -> str:
    """Return the command that limits each future client of *server* to *memory*."""
    return f"set_device_pinned_mem_limit {server} {DEVICE} {memory}M"


def default_threads(percent: CorePercent) -> str:
    """Return the command that limits the compute of each client of the next server."""
    return f"set_default_active_thread_percentage {percent}"


def server_threads(server: int, percent: CorePercent) -> str:
    """Return the command that limits the compute of each future client of *server*."""
    return f"set_active_thread_percentage {server} {percent}"


def quit_daemon(seconds: int) -> str:
    """Return the command that ends the daemon and its servers within *seconds*."""
    return f"quit -t {seconds}"


def refusal_in(log: str) -> str:
    """Return the last line of a server's *log* that tells of a client too many, else "".

    The documentation says that such attempts are logged, and not in which words. These are the
    names of CUDA's errors 808 and 809, and what a sentence about them would hold.
    """
    lines = [line for line in log.splitlines() if _CLIENT_TOO_MANY.search(line)]
    return lines[-1][:_LONGEST_LINE].strip() if lines else ""


def pids_of(answer: str) -> tuple[int, ...]:
    """Return the pids of a list, each once, in its order; empty if it is; raises MpsAnswerError."""
    words = answer.split()
    if len(words) > MOST_PIDS:
        raise MpsAnswerError(f"a list of {len(words)} processes; at most {MOST_PIDS} are accepted")
    for word in words:
        if _PID.fullmatch(word) is None or not 0 < int(word) <= LARGEST_PID:
            raise MpsAnswerError(f"{quote(word)} in a list of processes; a pid is expected")
    return tuple(dict.fromkeys(map(int, words)))


def state_of(answer: str) -> ServerState:
    """Return the state of a server; raises MpsAnswerError."""
    try:
        return ServerState(answer.strip())
    except ValueError:
        known = ", ".join(ServerState)
        raise MpsAnswerError(
            f"{quote(answer.strip())} as the state of a server; expected {known}"
        ) from None
