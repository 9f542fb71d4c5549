"""Ports for programs that are told where to listen."""

import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
# Below those that the kernel gives to connections: one of them may be taken, by any of the many
# clients of a cluster, between the moment it was found free and the program's start.
PORTS: Final = range(15_000, 32_000)
_CHANCE: Final = random.SystemRandom()  # tests that run side by side must not try the same ones
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on right now, another one each time.

    Raises ``OSError`` where none of many is free.
    """
    for port in _CHANCE.sample(PORTS, 100):
        if port not in _given and _free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port found among {PORTS}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
