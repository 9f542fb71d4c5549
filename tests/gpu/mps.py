"""Checks of mode mps with NVIDIA's own daemon, through the product's code.

The compute mode stays as it is: a run that is cut off must leave nothing behind on the GPU.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from agent.driver.driver import ComputeMode
from agent.driver.static_partitioning import static_refusal
from agent.mps.commands import (
    SERVER_LIST,
    MpsAnswerError,
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
from agent.mps.partitions.table import (
    LIST_PARTITIONS,
    add_partition,
    partition_name,
    partition_table,
    remove_partition,
)
from allocator.catalog.injection import MPS_PARTITION
from allocator.model.units import CorePercent, MiB
from tests.gpu import pytorch
from tests.gpu.container import Bench, CudaProcess
from tests.gpu.enforcement import CORES, TOLERANCE, pace
from tests.gpu.report import FailedError, Figures, SkippedError

LIMIT: Final = MiB(2048)  # of a client
BEYOND: Final = MiB(4096)
THREADS: Final = CorePercent(CORES)
_SPIN_SECONDS: Final = 2.0
READY_WITHIN: Final = 30.0  # seconds until the server takes clients
QUIT_SECONDS: Final = 10
_POLL: Final = 0.2


def check_daemon(bench: Bench, figures: Figures) -> None:
    """Start the daemon and its server as the agent does, and end them."""
    asyncio.run(_check_daemon(bench, figures))


def check_client(bench: Bench, figures: Figures) -> None:
    """Hold a CUDA program to its memory, and find it among the server's clients."""
    asyncio.run(_check_client(bench, figures))


def check_compute(bench: Bench, figures: Figures) -> None:
    """Compare the pace of a client that is promised a part of the compute with a free one's."""
    asyncio.run(_check_compute(bench, figures))


def check_pytorch(bench: Bench, figures: Figures) -> None:
    """Do so with what PyTorch launches."""
    words = pytorch.torch_words(figures)
    asyncio.run(_check_pytorch(bench, words, figures))


def check_static(bench: Bench, figures: Figures) -> None:
    """Start the daemon with static partitioning; make, list and remove a partition."""
    asyncio.run(_check_static(bench, figures))


def check_static_client(bench: Bench, figures: Figures) -> None:
    """Run a CUDA program in a partition, and none without."""
    asyncio.run(_check_static_client(bench, figures))


async def _check_static(bench: Bench, figures: Figures) -> None:
    gpu = _static_gpu(bench)
    async with _daemon(bench, gpu, figures, static=True) as client:
        free = partition_table(await client.ask(gpu, LIST_PARTITIONS))
        figures["chunks"] = free.chunks
        name = partition_name(await client.ask(gpu, add_partition(gpu, 1)))
        table = partition_table(await client.ask(gpu, LIST_PARTITIONS))
        if list(table.partitions) != [name]:
            raise FailedError(f"{name} was made, and {list(table.partitions)} are listed")
        if (table.free, table.partitions[name].chunks) != (free.free - 1, 1):
            raise FailedError(f"of {free.free} free chunks one was taken; {table.free} are left")
        await client.ask(gpu, remove_partition(gpu, name))
        if partition_table(await client.ask(gpu, LIST_PARTITIONS)) != free:
            raise FailedError("the partition was removed, and the table is another than before")


async def _check_static_client(bench: Bench, figures: Figures) -> None:
    gpu = _static_gpu(bench)
    async with _daemon(bench, gpu, figures, static=True) as client:
        name = partition_name(await client.ask(gpu, add_partition(gpu, 1)))
        variables = _client_variables(client, gpu)
        with CudaProcess((), variables | {MPS_PARTITION: f"{gpu}/{name}"}) as program:
            program.open(0)
            table = partition_table(await client.ask(gpu, LIST_PARTITIONS))
            if not table.partitions[name].in_use:
                raise FailedError("a program has a context in a partition that lists no clients")


def _static_gpu(bench: Bench) -> str:
    """Return the UUID of a GPU that can be partitioned; skips the check where there is none."""
    gpu = _gpu(bench)
    refusal = static_refusal(bench.driver.versions().cuda, bench.device.capability)
    if refusal:
        raise SkippedError(refusal)
    return gpu


def _client_variables(client: "_Client", gpu: str) -> dict[str, str]:
    """Return the environment of a program that reaches the daemon."""
    pipe = folders_of(str(client.folder), gpu).pipe
    kept = {name: v for name, v in os.environ.items() if not name.startswith("CUDA_")}
    return {**kept, "CUDA_MPS_PIPE_DIRECTORY": pipe}


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
        with CudaProcess((), _client_variables(client, gpu)) as program:
            program.open(0)
            clients = pids_of(await client.ask(gpu, client_list(server)))
            figures["clients"] = len(clients)
            if not clients:
                raise FailedError("the server lists no client while a program has a context")
            if program.allocate(BEYOND):
                raise FailedError(f"a client allocated {BEYOND} MiB, with a limit of {LIMIT} MiB")


async def _check_compute(bench: Bench, figures: Figures) -> None:
    gpu = _gpu(bench)
    with bench.program() as free:
        free.open(bench.device.index)
        full = pace(free.figures("spin", seconds=_SPIN_SECONDS))
    async with _daemon(bench, gpu, figures) as client:
        with CudaProcess((), _client_variables(client, gpu)) as program:
            program.open(0)
            answer = await asyncio.to_thread(program.figures, "spin", seconds=_SPIN_SECONDS)
    share = 100 * pace(answer) / full
    figures |= {"promised_percent": int(THREADS), "pace_percent": share}
    if share > CORES + TOLERANCE:
        raise FailedError(f"it computes at {share:.0f} % of a free GPU's pace, promised {CORES}")


async def _check_pytorch(bench: Bench, words: Sequence[str], figures: Figures) -> None:
    gpu = _gpu(bench)
    full = pytorch.free_paces(bench, words)
    async with _daemon(bench, gpu, figures) as client:
        with CudaProcess((), _client_variables(client, gpu), words) as program:
            shares = await asyncio.to_thread(pytorch.shares_of, program, full)
    pytorch.judge(shares, pytorch.COMPUTING, figures)


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
async def _daemon(
    bench: Bench, gpu: str, figures: Figures, *, static: bool = False
) -> AsyncIterator[_Client]:
    """Yield a client of a daemon whose server takes clients under our limits."""
    # Not in the bench's folder: the paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="vgpu-mps-") as folder:
        client = _Client(Path(folder))
        before = bench.driver.compute_mode(gpu)
        began = time.monotonic()
        try:
            await client.prepare(gpu)
            await client.start(gpu, static=static)
            await client.ask(gpu, default_memory(LIMIT))
            await client.ask(gpu, default_threads(THREADS))
            await client.ask(gpu, start_server())
            await _await_server(client, gpu)
            figures["seconds"] = time.monotonic() - began
            yield client
        except (DaemonError, MpsAnswerError) as error:
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
