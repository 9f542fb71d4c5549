"""A list that is watched: rows when they change, and a server that comes and goes."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.cli import get
from console.cli.get import ChangePrinter, ListSelection, Printer
from console.cli.kubectl_vgpu import NAME, cli
from console.cli.session import CommandSession
from console.cli.watch import watch
from console.cluster.reader_client import ClusterReader
from console.get.listing import OutputFormat
from tests.builders.gpunodes import gpu_node
from tests.builders.model import T4, nodes_of
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import (
    GPU_NODES,
    NODES,
    kubeconfig,
    put,
    refusal_body,
    run_with_server,
    session,
)
from tests.unit.console.sites import machine

WITHIN = 20.0  # seconds


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110 -- what it waits for has no event of its own
            await asyncio.sleep(0.01)


def watched(commands: CommandSession) -> asyncio.Task[int]:
    """Begin to watch the nodes."""
    printer = ChangePrinter(Printer(commands, OutputFormat.TABLE, headed=True))

    async def view(reader: ClusterReader) -> int:
        return await get.nodes(reader, printer, ListSelection())

    return asyncio.create_task(commands.answer(lambda reader: watch(reader, view, interval=0.01)))


def text(stream: object) -> str:
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def names(commands: CommandSession) -> list[str]:
    """Return the first cell of each line so far."""
    return [line.split()[0] for line in text(commands.output).splitlines()]


def add(server: ApiServer, name: str, *, cordoned: bool = False) -> None:
    put(server, GPU_NODES, gpu_node(nodes_of(1, T4, name=name)))
    put(server, NODES, machine(name, cordoned=cordoned))


async def end(task: asyncio.Task[int]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_only_what_changes_is_printed_again(tmp_path: Path) -> None:
    """The list comes once with its headings; then the rows that are new or different."""

    async def scenario(server: ApiServer) -> None:
        commands = session(kubeconfig(tmp_path, server.url))
        task = watched(commands)
        await until(lambda: len(names(commands)) == 2)
        reads = len(server.requests)
        await until(lambda: len(server.requests) > reads + 8)
        add(server, "n1")
        await until(lambda: len(names(commands)) == 3)
        place = parsed(f"{NODES}/n0")
        server.objects.replace(place, machine("n0", cordoned=True))
        await until(lambda: len(names(commands)) == 4)
        await end(task)

        assert names(commands) == ["NAME", "n0", "n1", "n0"]
        assert text(commands.errors).count("n0 takes no new pods: ") == 1

    run_with_server(scenario, "n0")


def test_an_empty_list_waits_for_its_first_row(tmp_path: Path) -> None:
    """Its headings come with that row."""

    async def scenario(server: ApiServer) -> None:
        commands = session(kubeconfig(tmp_path, server.url))
        task = watched(commands)
        await until(lambda: len(server.requests) > 12)
        add(server, "n1")
        await until(lambda: len(names(commands)) == 2)
        await end(task)

        assert names(commands) == ["NAME", "n1"]
        assert text(commands.errors) == "No resources found\n"

    run_with_server(scenario)


def test_a_server_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    """One warning for one outage, however many reads fail."""

    async def scenario(server: ApiServer) -> None:
        commands = session(kubeconfig(tmp_path, server.url))
        task = watched(commands)
        await until(lambda: len(names(commands)) == 2)
        for _ in range(2):
            server.answer_next(503, body=refusal_body(503, "Unavailable", "no leader"), times=5)
            before = len(server.requests)
            await until(lambda: len(server.requests) > before + 12)  # noqa: B023 -- awaited here
        add(server, "n1")
        await until(lambda: len(names(commands)) == 3)
        await end(task)

        assert text(commands.errors).count("the server does not answer") == 2
        assert text(commands.errors).count("no leader") == 2

    run_with_server(scenario, "n0")


@pytest.mark.parametrize("status", [401, 403])
def test_a_right_that_is_gone_ends_it(tmp_path: Path, status: int) -> None:
    """Nobody waits for a right, and the API server is not asked for ever."""

    async def scenario(server: ApiServer) -> None:
        commands = session(kubeconfig(tmp_path, server.url))
        task = watched(commands)
        await until(lambda: len(names(commands)) == 2)
        server.answer_next(status, body=refusal_body(status, "Forbidden", "gpunodes"), times=99)
        async with asyncio.timeout(WITHIN):
            assert await task == 1

    run_with_server(scenario, "n0")


@pytest.mark.parametrize("kind", ["nodes", "gpus", "pods"])
@pytest.mark.parametrize("output", ["json", "yaml", "csv"])
def test_a_document_cannot_be_watched(kind: str, output: str) -> None:
    """It would never end; the message says what can be."""
    done = CliRunner().invoke(cli, ["get", kind, "-w", "-o", output], prog_name=NAME)

    assert done.exit_code == 2
    assert f"--watch cannot go with -o {output}; accepted: a table, -o wide" in done.output


def test_who_interrupts_it_gets_the_code_of_a_shell(tmp_path: Path) -> None:
    """As kubectl, so that a script can tell an end from an error."""

    async def interrupted(_: ClusterReader) -> int:
        raise KeyboardInterrupt

    assert session(kubeconfig(tmp_path, "http://127.0.0.1:1")).run(interrupted) == 130
