"""Checks of mode mps with NVIDIA's own daemon, through the product's code.

The compute mode stays as it is: a run that is cut off must leave nothing behind on the GPU.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from agent.driver.driver import ComputeMode
from agent.mps.commands import (
    SERVER_LIST,
    ServerState,
    client_list,
    default_memory,
    default_threads,
    pids_of,
    quit_daemon,
    server_status,
    start_server,
    state_of,
)
from agent.mps.daemon import CONTROL, DaemonError, folders_of
from agent.mps.daemon_client import DaemonClient, DaemonOptions
from allocator.model.units import CorePercent, MiB
from tests.gpu.container import Bench, CudaProcess
from tests.gpu.report import FailedError, Figures, SkippedError

LIMIT: Final = MiB(1024)  # of a client
BEYOND: Final = MiB(2048)
THREADS: Final = CorePercent(50)
READY_WITHIN: Final = 30.0  # seconds until the server takes clients
QUIT_SECONDS: Final = 10
_POLL: Final = 0.2


def check_daemon(bench: Bench, figures: Figures) -> None:
    """Start the daemon and its server as the agent does, and end them."""
    asyncio.run(_check_daemon(bench, figures))


def check_client(bench: Bench, figures: Figures) -> None:
    """Hold a CUDA program to its memory, and find it among the server's clients."""
    asyncio.run(_check_client(bench, figures))


async def _check_daemon(bench: Bench, figures: Figures) -> None:
    gpu = _gpu(bench)
    async with _daemon(bench, gpu, figures) as client:
        await client.ask(gpu, quit_daemon(QUIT_SECONDS))
        end = time.monotonic() + QUIT_SECONDS
        while await client.is_alive(gpu):
            if time.monotonic() > end:
                raise FailedError(f"the daemon lives {QUIT_SECONDS} s after it was told to quit")
            await asyncio.sleep(_POLL)


async def _check_client(bench: Bench, figures: Figures) -> None:
    gpu = _gpu(bench)
    async with _daemon(bench, gpu, figures) as client:
        server = pids_of(await client.ask(gpu, SERVER_LIST))[0]
        pipe = folders_of(str(client.folder), gpu).pipe
        kept = {name: v for name, v in os.environ.items() if not name.startswith("CUDA_")}
        with CudaProcess((), {**kept, "CUDA_MPS_PIPE_DIRECTORY": pipe}) as program:
            program.open(0)
            clients = pids_of(await client.ask(gpu, client_list(server)))
            figures["clients"] = len(clients)
            if not clients:
                raise FailedError("the server lists no client while a program has a context")
            if program.allocate(BEYOND):
                raise FailedError(f"a client allocated {BEYOND} MiB, with a limit of {LIMIT} MiB")


def _gpu(bench: Bench) -> str:
    """Return the UUID of a GPU that can be in the mode; skips the check where there is none."""
    if shutil.which(CONTROL) is None:
        raise SkippedError(f"{CONTROL} is not on the path")
    if os.geteuid() != 0:
        raise SkippedError("a server for clients of all users takes root's rights")
    device = bench.device
    if not device.mps:
        raise SkippedError("the GPU is older than Volta")
    if bench.driver.compute_mode(device.uuid) is ComputeMode.PROHIBITED:
        raise SkippedError("the compute mode of the GPU is PROHIBITED")
    return device.uuid


class _Client(DaemonClient):
    """The agent's client, which says where its folders are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, DaemonOptions(host_root=str(folder)))
        self.folder = folder


@asynccontextmanager
async def _daemon(bench: Bench, gpu: str, figures: Figures) -> AsyncIterator[_Client]:
    """Yield a client of a daemon whose server takes clients under our limits."""
    # Not in the bench's folder: the paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="vgpu-mps-") as folder:
        client = _Client(Path(folder))
        before = bench.driver.compute_mode(gpu)
        began = time.monotonic()
        try:
            await client.prepare(gpu)
            await client.start(gpu)
            await client.ask(gpu, default_memory(LIMIT))
            await client.ask(gpu, default_threads(THREADS))
            await client.ask(gpu, start_server())
            await _await_server(client, gpu)
            figures["seconds"] = time.monotonic() - began
            yield client
        except DaemonError as error:
            raise FailedError(str(error)) from error
        finally:
            await client.kill(gpu)
        if bench.driver.compute_mode(gpu) is not before:
            raise FailedError("the compute mode of the GPU is another than before")


async def _await_server(client: _Client, gpu: str) -> None:
    end = time.monotonic() + READY_WITHIN
    state = "no server"
    while time.monotonic() < end:
        for server in pids_of(await client.ask(gpu, SERVER_LIST)):
            state = state_of(await client.ask(gpu, server_status(server)))
        if state == ServerState.ACTIVE:
            return
        await asyncio.sleep(_POLL)
    raise FailedError(f"after {READY_WITHIN:g} s the server is not ACTIVE: {state}")
