"""Commands of the control program, and its answers as hostile text."""

import pytest

from agent.mps.commands import (
    MOST_PIDS,
    MpsAnswerError,
    ServerState,
    default_memory,
    pids_of,
    refusal_in,
    server_memory,
    server_threads,
    state_of,
    terminate_client,
)
from allocator.model.units import CorePercent, MiB


def test_commands_are_one_line_of_numbers() -> None:
    """What is written to the daemon holds numbers of ours, and no text of anybody else."""
    assert default_memory(MiB(4096)) == "set_default_device_pinned_mem_limit 0 4096M"
    assert server_memory(17, MiB(1)) == "set_device_pinned_mem_limit 17 0 1M"
    assert server_threads(17, CorePercent(30)) == "set_active_thread_percentage 17 30"
    assert terminate_client(17, 18) == "terminate_client 17 18"


@pytest.mark.parametrize(
    ("answer", "pids"),
    [
        ("", ()),
        ("\n", ()),
        ("17", (17,)),
        ("17\n18\n", (17, 18)),
        ("17 17", (17,)),
        ("1 4194304", (1, 4194304)),  # the least and the largest of Linux
    ],
)
def test_a_list_of_processes_is_read(answer: str, pids: tuple[int, ...]) -> None:
    """Each pid counts once, in the order of the list."""
    assert pids_of(answer) == pids


@pytest.mark.parametrize(
    "answer",
    [
        "0",
        "-1",
        "1.0",
        "0x10",
        "١٢",  # digits, but not ASCII
        "4194305",
        "99999999999999999999",
        "17; reboot",
        "$(reboot)",
        "Cannot find MPS control daemon process",
        "\x1b[31m17",
        "17\x00",
        " ".join(map(str, range(1, MOST_PIDS + 2))),
    ],
)
def test_an_answer_that_is_no_list_is_refused(answer: str) -> None:
    """No pid is made of text that the documentation does not have; the error quotes it."""
    with pytest.raises(MpsAnswerError):
        pids_of(answer)


@pytest.mark.parametrize(
    "answer", ["", "active", "ACTIVE FAULT", "OK", "1", "\x00", "A" * 9999, "\uff21CTIVE"]
)
def test_an_unknown_state_is_refused(answer: str) -> None:
    """A server whose state is unknown is never taken for one that works."""
    assert state_of("ACTIVE\n") is ServerState.ACTIVE
    with pytest.raises(MpsAnswerError, match="state of a server"):
        state_of(answer)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-01 00:00:00.000 Server 82] CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED for client {PID: 4267, Context ID: 1}",
        "Maximum number of clients reached",
        "Max connections reached, rejecting client 12",
        "Client limit of 48 exceeded",
    ],
)
def test_a_client_too_many_is_found_in_a_log(line: str) -> None:
    """Whatever stands around it; the last such line counts."""
    assert refusal_in(f"first\n{line}\nServer has started\n") == line
    assert refusal_in(f"{line}\n{line} again\n") == f"{line} again"


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n\n",
        "Received new client request for {PID: 4267, Context ID: 0}",
        "Client {PID: 4267, Context ID: 0} connected",
        "Device pinned memory limit for device 0 set to 0x77f00000 bytes",
        "Active Threads Percentage set to 12.0",
        "Receive command failed, assuming client exit",
        "User did not send valid credentials",
        "NEW CLIENT 0 from user 1000: Server is not ready, push client to pending list",
        "\ufffd" * 1000,
        "maximumclients",
    ],
)
def test_other_lines_of_a_log_are_no_refusal(log: str) -> None:
    """These are lines that servers are known to write."""
    assert refusal_in(log) == ""


def test_a_long_line_of_a_log_is_cut() -> None:
    """Its length is nobody's business but the log's."""
    assert len(refusal_in("client limit " + "x" * 100_000)) <= 256
