"""Commands in tests: a person's session with a server of this process."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from console.cli import get
from console.cli.get import ListSelection, Printer
from console.cli.session import CommandSession
from console.cluster.cluster_client import ClusterTarget
from console.get.listing import OutputFormat
from tests.builders.gpunodes import gpu_node
from tests.builders.model import T4, nodes_of
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.unit.console.sites import machine

GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
NODES = "/api/v1/nodes"
SETTINGS = "/api/v1/namespaces/vgpu-admission-system/configmaps"

Scenario = Callable[[ApiServer], Awaitable[None]]


def kubeconfig(folder: Path, url: str, **user: object) -> str:
    """Write a kubeconfig of one context and return its path."""
    path = folder / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": "here",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user or {"token": "secret"}}],
                "contexts": [
                    {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
                ],
            }
        )
    )
    return str(path)


def session(config: str, *, context: str | None = None, seconds: float = 10.0) -> CommandSession:
    target = ClusterTarget(kubeconfig=config, context=context, seconds=seconds)
    return CommandSession(
        target=target,
        system="vgpu-admission-system",
        output=io.StringIO(),
        errors=io.StringIO(),
    )


async def gpus(commands: CommandSession, *names: str) -> tuple[int, str, str]:
    """List GPUs; return the exit code and what was written to the two streams."""
    printer = Printer(commands, OutputFormat.TABLE, headed=True)
    return result(
        commands,
        await commands.answer(lambda gather: get.gpus(gather, printer, ListSelection(names=names))),
    )


async def nodes(commands: CommandSession, output: OutputFormat) -> tuple[int, str, str]:
    """List nodes, and return the same."""
    printer = Printer(commands, output, headed=True)
    return result(
        commands,
        await commands.answer(lambda gather: get.nodes(gather, printer, ListSelection())),
    )


async def pods(commands: CommandSession, which: ListSelection) -> tuple[int, str, str]:
    """List pods, and return the same."""
    printer = Printer(commands, OutputFormat.TABLE, headed=True)
    return result(commands, await commands.answer(lambda gather: get.pods(gather, printer, which)))


def result(commands: CommandSession, code: int) -> tuple[int, str, str]:
    assert isinstance(commands.output, io.StringIO)
    assert isinstance(commands.errors, io.StringIO)
    return code, commands.output.getvalue(), commands.errors.getvalue()


def run_with_server(scenario: Scenario, *names: str) -> ApiServer:
    """Run *scenario* with a server that has GPU nodes with these names."""

    async def play() -> ApiServer:
        async with ApiServer() as server:
            for name in names:
                put(server, GPU_NODES, gpu_node(nodes_of(1, T4, name=name)))
                put(server, NODES, machine(name))
            await scenario(server)
        return server

    return asyncio.run(play())


def put(server: ApiServer, path: str, written: dict[str, Any]) -> None:
    server.objects.create(parsed(path), written)


def refusal_body(status: int, reason: str, message: str) -> bytes:
    body = {"kind": "Status", "reason": reason, "message": message, "code": status}
    return json.dumps(body).encode()
