"""Limits of clients, and how many there may be."""

import pytest

from agent.mps.limits import NOBODY, client_limits, server_limits
from agent.node.slots import most_clients
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB


def grant(memory: int, cores: int) -> Grant:
    return Grant(gpu="GPU-1", mode=Mode.MPS, memory=MiB(memory), cores=CorePercent(cores))


def test_the_server_has_the_largest_of_each_amount() -> None:
    """No client is held below its promise by the server, and none gets more than the largest."""
    limits = server_limits([grant(4096, 30), grant(1024, 50)])
    assert (limits.memory, limits.threads) == (4096, 50)
    assert limits.covers(client_limits(grant(4096, 30)))
    assert not limits.covers(client_limits(grant(4097, 30)))
    assert not limits.covers(client_limits(grant(1, 51)))


def test_a_grant_without_cores_may_use_all_of_them() -> None:
    """0 cores are no limit, as in the other modes that share in software."""
    assert client_limits(grant(1024, 0)).threads == 100
    assert server_limits([grant(1024, 0), grant(1024, 10)]).threads == 100


def test_without_entries_the_server_gives_next_to_nothing() -> None:
    """A program that finds the daemon without an entry gets no share by default."""
    assert server_limits([]) == NOBODY


@pytest.mark.parametrize(
    ("cuda", "most"),
    [
        ("13.1", 60),
        ("13.10", 60),
        ("14.0", 60),
        ("13.0", 48),
        ("12.8", 48),
        ("", 48),
        ("simulated", 48),
        ("13", 48),
        ("13.x", 48),
        ("\uff11\uff13.\uff11", 48),
        ("-13.1", 48),
        ("13.1.2", 48),
        ("9" * 5000 + ".1", 48),
        ("13.1\n", 48),
        (" 13.1", 48),
    ],
)
def test_the_driver_says_how_many_clients_there_may_be(cuda: str, most: int) -> None:
    """A version that cannot be read counts as an old one."""
    assert most_clients(cuda) == most


def test_what_was_seen_is_possible() -> None:
    """A driver that served more clients than assumed serves them again."""
    assert most_clients("12.8", seen=60) == 60
    assert most_clients("13.1", seen=3) == 60
