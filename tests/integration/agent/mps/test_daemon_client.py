"""Real processes: a stand-in for NVIDIA's control program, its servers, and how they fail."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
import uvloop

from agent.driver.driver import ComputeMode
from agent.driver.driver_thread import DriverThread
from agent.driver.simulated_files import SimulatedDriver
from agent.mps.commands import SERVER_LIST, default_memory, default_threads, start_server
from agent.mps.daemon import DaemonError, folders_of
from agent.mps.daemon_client import DaemonClient, DaemonOptions
from agent.mps.gpu_controller import MpsServices
from agent.mps.journal_files import MpsJournal
from agent.mps.mps_controller import MpsController, Partitioning, grants_by_gpu
from agent.mps.partitions.book_files import PartitionBook
from agent.mps.partitions.table import (
    add_partition,
    partition_name,
    partition_table,
    remove_partition,
)
from agent.mps.trouble import MpsTrouble, MpsTroubleKind
from agent.share import Owner, Share
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from tests.fakes.driver import T4, machine
from tests.fakes.mps_control import install

STATE = machine(T4)
GPU = STATE.gpus[0].chip.uuid
GRANT = Grant(gpu=GPU, mode=Mode.MPS, memory=MiB(4096), cores=CorePercent(30))


class Node:
    """A node's folder, short enough for sockets, and clients of its daemons."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program = install(root / "bin")
        self.folders = folders_of(str(root), GPU)
        self.client = self.agent()

    def agent(self, patience: float = 5.0) -> DaemonClient:
        """Return the daemons as another start of the agent knows them."""
        options = DaemonOptions(host_root=str(self.root), program=self.program, patience=patience)
        return DaemonClient(self.root, options)

    async def start(self) -> None:
        await self.client.prepare(GPU)
        await self.client.start(GPU)


@pytest.fixture
def node() -> Iterator[Node]:
    with TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        node = Node(Path(folder))
        try:
            yield node
        finally:
            asyncio.run(node.client.kill(GPU))


def run(story: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_that_reads_nothing_answers_all_the_same(
    node: Node, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """One that ends at once, or closes its standard input, must not end the agent."""

    async def story() -> None:
        for _ in range(20):
            assert await node.client.ask(GPU, SERVER_LIST) == "7\n"

    Path(node.program).write_text("#!/bin/sh\nexec <&-\necho 7\n")
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(story(), 60))


def test_no_command_is_run_by_a_fork_of_the_loop(node: Node) -> None:
    """In a child of uvloop's, gRPC's handlers run before the program does, and may end it."""
    watched = [True]
    os.register_at_fork(after_in_child=lambda: os._exit(77) if watched else None)

    async def story() -> None:
        assert await node.client.ask(GPU, SERVER_LIST) == "7\n"

    Path(node.program).write_text("#!/bin/sh\necho 7\n")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(story(), 60))
    finally:
        watched.clear()


def test_a_client_too_many_is_read_from_the_log(node: Node) -> None:
    """Of a log that is longer than what is read of it, and of none."""

    async def story() -> None:
        await node.start()
        assert await node.client.last_refusal(GPU) == ""
        (Path(node.folders.log) / "server.log").write_text("Server has started\n" * 10_000)
        assert await node.client.last_refusal(GPU) == ""
        for pid in range(1000, 1000 + 60):
            await node.client.ask(GPU, f"test_connect {pid} 1 1")
        await node.client.ask(GPU, "test_connect 5 1 1")
        assert "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED" in await node.client.last_refusal(GPU)

    run(story)


def test_limits_reach_clients_of_the_real_process(node: Node) -> None:
    """A client that asks for more gets the server's limits, one that asks for less its own."""

    async def story() -> None:
        await node.start()
        await node.client.ask(GPU, default_memory(MiB(4096)))
        await node.client.ask(GPU, default_threads(CorePercent(30)))
        await node.client.ask(GPU, start_server())
        (server,) = map(int, (await node.client.ask(GPU, SERVER_LIST)).split())
        assert await node.client.server_pids(GPU) == {server}
        assert (await node.client.ask(GPU, "test_connect 5 99999 100")).split() == ["4096", "30"]
        assert (await node.client.ask(GPU, "test_connect 6 1024 10")).split() == ["1024", "10"]

    run(story)


def test_a_new_agent_finds_the_daemon_of_the_old_one(node: Node) -> None:
    """It is known by pid and start time, so another process with its pid is not taken for it."""

    async def story() -> None:
        await node.start()
        other = node.agent()
        assert await other.is_alive(GPU)
        assert other.known() == {GPU}
        record = Path(node.folders.root) / "daemon.json"
        kept = record.read_text()
        record.write_text(f'{{"pid":{os.getpid()},"started":1}}')
        assert not await other.is_alive(GPU)
        await other.kill(GPU)  # and is not killed either
        record.write_text(kept)

    run(story)


@pytest.mark.parametrize(
    "record",
    [
        "",
        "{",
        "[]",
        "null",
        '{"pid":"1","started":0}',
        '{"pid":-1,"started":0}',
        '{"pid":0,"started":0}',
        '{"pid":1e99,"started":0}',
        '{"pid":"../self","started":0}',
        '{"pid":99999999999999999999999,"started":0}',
        "\x00" * 64,
        "[" * 5000,
    ],
)
def test_a_damaged_record_names_no_process(node: Node, record: str) -> None:
    """Nothing is killed because of what stands in a file."""

    async def story() -> None:
        await node.client.prepare(GPU)
        (Path(node.folders.root) / "daemon.json").write_text(record)
        assert not await node.client.is_alive(GPU)
        assert await node.client.server_pids(GPU) == frozenset()
        await node.client.kill(GPU)

    run(story)


def test_a_daemon_of_an_earlier_release_has_no_partitions(node: Node) -> None:
    """Its record does not say so."""

    async def story() -> None:
        await node.client.prepare(GPU)
        (Path(node.folders.root) / "daemon.json").write_text('{"pid":1,"started":0}')
        assert not node.client.is_static(GPU)

    run(story)


def test_a_daemon_without_a_record_is_ended_at_once(node: Node) -> None:
    """Nobody would find it again, and no other could start beside it."""

    async def story() -> None:
        await node.client.prepare(GPU)
        record = Path(node.folders.root) / "daemon.json"
        record.mkdir()  # stands for a disk that is full
        with pytest.raises(DaemonError, match="cannot be started"):
            await node.client.start(GPU)
        record.rmdir()
        children = node.client._children  # noqa: SLF001 -- it has no record
        assert children[GPU].wait(10) == -signal.SIGKILL
        await node.client.start(GPU)

    run(story)


def test_folders_that_cannot_be_made_are_told(node: Node) -> None:
    """As one of the daemon's troubles, which its GPU waits for."""
    (node.root / "mps").write_text("a file")

    async def story() -> None:
        with pytest.raises(DaemonError, match="folders of its MPS daemon cannot be made"):
            await node.client.prepare(GPU)

    run(story)


def test_a_mount_that_hangs_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not end the agent, which serves the other GPUs."""
    mount = node.root / "bin" / "mount"
    mount.write_text("#!/bin/sh\nexec sleep 600\n")
    mount.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mount.parent}:{os.environ['PATH']}")
    options = DaemonOptions(host_root=str(node.root), shared_memory=MiB(64), patience=0.2)

    async def story() -> None:
        with pytest.raises(DaemonError, match="mount does not end within"):
            await DaemonClient(node.root, options).prepare(GPU)

    run(story)


def test_a_pid_file_of_a_tenant_is_not_read(node: Node) -> None:
    """Clients have the folder of pipes mounted, and may write there what they like."""

    async def story() -> None:
        await node.start()
        pipe = Path(node.folders.pipe) / "nvidia-cuda-mps-control.pid"
        pipe.write_text(str(os.getpid()))
        await node.client.kill(GPU)
        assert not await node.client.is_alive(GPU)

    run(story)


def test_a_daemon_that_ends_at_once_says_why(node: Node) -> None:
    """The reason is what the program wrote last."""
    (node.root / "mps" / GPU).mkdir(parents=True)
    (node.root / "mps" / GPU / "broken").touch()

    async def story() -> None:
        await node.client.prepare(GPU)
        with pytest.raises(DaemonError, match="Cannot find MPS server executable"):
            await node.client.start(GPU)

    run(story)


def test_a_missing_program_is_named(node: Node) -> None:
    """NVIDIA's runtime gives the program only to containers that ask for compute."""
    Path(node.program).unlink()

    async def story() -> None:
        await node.client.prepare(GPU)
        with pytest.raises(DaemonError, match="cannot be started"):
            await node.client.start(GPU)
        with pytest.raises(DaemonError, match="cannot be started"):
            await node.client.ask(GPU, SERVER_LIST)

    run(story)


def test_a_daemon_that_hangs_costs_seconds(node: Node) -> None:
    """The control program hangs with it, and is ended."""

    async def story() -> None:
        node.client = node.agent(patience=2)
        await node.start()
        with pytest.raises(DaemonError, match="no answer within"):
            await node.client.ask(GPU, "test_hang")
        with pytest.raises(DaemonError, match="no answer within"):
            await node.client.ask(GPU, SERVER_LIST)
        await node.client.kill(GPU)
        assert not await node.client.is_alive(GPU)

    run(story)


def test_a_flood_is_cut_off(node: Node) -> None:
    """An answer that is too long is none."""

    async def story() -> None:
        await node.start()
        with pytest.raises(DaemonError, match="more than 65536 bytes"):
            await node.client.ask(GPU, "test_flood")

    run(story)


def test_a_refused_limit_is_an_error(node: Node) -> None:
    """A limit that does not stand must not be taken for one that does."""

    async def story() -> None:
        await node.start()
        with pytest.raises(DaemonError, match="refused"):
            await node.client.ask(GPU, "set_default_device_pinned_mem_limit 1 12M")

    run(story)


@pytest.mark.parametrize(
    "gpu",
    [
        "",
        ".",
        "..",
        "GPU-",
        "GPU-../../../etc",
        "/etc",
        "GPU-1234567/",
        "GPU-12345678\n",
        "GPU-12345678\x00",
        "MIG-12345678-1234",
        "GPU-" + "a" * 61,
        "GPU-\uff462345678",
        "gpu-12345678",
    ],
)
def test_only_a_uuid_becomes_a_path(node: Node, gpu: str) -> None:
    """A name from the ledger is text of somebody else."""

    async def story() -> None:
        with pytest.raises(DaemonError, match="UUID"):
            await node.client.prepare(gpu)

    run(story)
    assert sorted(path.name for path in node.root.iterdir()) == ["bin"]


def test_a_path_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    """The kernel would cut it, or the daemon would fail without a reason."""

    async def story() -> None:
        folder = tmp_path / ("vgpu" * 20)
        client = DaemonClient(folder, DaemonOptions(host_root=str(folder)))
        with pytest.raises(DaemonError, match="too long for sockets"):
            await client.prepare(GPU)

    run(story)


def test_a_gpu_goes_through_the_mode_with_real_processes(node: Node) -> None:
    """Entering, a kill of the server, a kill of the daemon, and leaving."""
    driver = SimulatedDriver(STATE)
    worker = DriverThread(driver)
    told: list[MpsTrouble] = []

    async def story() -> None:
        services = MpsServices(
            worker=worker,
            daemons=node.client,
            journal=MpsJournal(node.root / "mps.json", boot="boot-1"),
            book=PartitionBook(node.root / "mps-partitions.json", boot="boot-1"),
            report=lambda _, trouble: told.append(trouble),
        )
        mps = MpsController(services, host_root=str(node.root), patience=20)
        task = asyncio.create_task(mps.run())
        mps.set_desired({GPU}, grants_by_gpu([GRANT]))
        await mps.ready_daemon(GRANT)
        assert driver.compute_mode(GPU) is ComputeMode.EXCLUSIVE_PROCESS
        for kill in (await node.client.server_pids(GPU), daemon_pids(node)):
            before = len(told)
            for pid in kill:
                os.kill(pid, signal.SIGKILL)
            while len(told) == before:
                await mps.settle()
            while mps.unready():
                await mps.settle()
            await mps.ready_daemon(GRANT)
        mps.set_desired((), {})
        while not mps.is_idle:
            await mps.settle()
        task.cancel()

    run(story)
    assert [trouble.kind for trouble in told] == [
        MpsTroubleKind.SERVER_ENDED,
        MpsTroubleKind.DAEMON_ENDED,
    ]
    assert driver.compute_mode(GPU) is ComputeMode.DEFAULT
    assert not Path(node.folders.root).exists()
    asyncio.run(worker.close())


PARTITIONED: Final = Partitioning(
    static={GPU: ""}, holders={GPU: frozenset({"u1/main", "u2/main"})}
)


def test_partitions_of_real_processes_survive_an_agent_and_end_with_their_entry(
    node: Node,
) -> None:
    """The daemon runs with -S; the next agent takes over what there is, and removes what is not."""
    worker = DriverThread(SimulatedDriver(STATE))
    owner = Owner(uid="u1", namespace="team", pod="p", containers=("main",))
    share = Share(owner=owner, grants=(GRANT,), key="c0")

    def agent(client: DaemonClient) -> MpsController:
        services = MpsServices(
            worker=worker,
            daemons=client,
            journal=MpsJournal(node.root / "mps.json", boot="boot-1"),
            book=PartitionBook(node.root / "mps-partitions.json", boot="boot-1"),
        )
        return MpsController(services, host_root=str(node.root), patience=20)

    async def partitions() -> tuple[str, ...]:
        return tuple(partition_table(await node.client.ask(GPU, "lspart")).partitions)

    async def story() -> None:
        first = agent(node.client)
        first.set_desired({GPU}, grants_by_gpu([GRANT]), PARTITIONED)
        task = asyncio.create_task(first.run())
        await first.ready_daemon(GRANT)
        name = await first.ready_partition(share)
        assert await node.client.ask(GPU, f"test_connect 18 4096 100 {name}") == "4096 30"
        assert "INVALID_RESOURCE" in await node.client.ask(GPU, "test_connect 19 4096 100")
        await node.client.ask(GPU, "test_disconnect 18")
        task.cancel()
        await node.client.ask(GPU, f"sm_partition add {GPU} 3")  # and killed before it was written
        second = agent(node.agent())
        second.set_desired({GPU}, grants_by_gpu([GRANT]), PARTITIONED)
        await second.settle()
        assert await partitions() == (name.partition("/")[2],)
        second.set_desired({GPU}, {}, Partitioning(static={GPU: ""}))
        await second.settle()
        assert await partitions() == ()
        second.set_desired((), {})
        while not second.is_idle:
            await node.client.is_alive(GPU)  # reaps it, as this process has started it
            await second.settle()

    run(story)
    asyncio.run(worker.close())


def test_commands_about_partitions_are_refused_by_a_daemon_without_them(node: Node) -> None:
    """And by one whose chunks have run out; neither answer is taken for a partition."""

    async def story() -> None:
        await node.start()
        with pytest.raises(DaemonError, match="refused sm_partition"):
            await node.client.ask(GPU, add_partition(GPU, 1))
        assert not node.client.is_static(GPU)
        await node.client.kill(GPU)
        await node.client.start(GPU, static=True)
        assert node.agent().is_static(GPU)
        partition_name(await node.client.ask(GPU, add_partition(GPU, 16)))
        with pytest.raises(DaemonError, match="not enough free chunks"):
            await node.client.ask(GPU, add_partition(GPU, 1))
        with pytest.raises(DaemonError, match="no such partition"):
            await node.client.ask(GPU, remove_partition(GPU, "Dx9"))

    run(story)


def daemon_pids(node: Node) -> tuple[int, ...]:
    """Return the pid of the daemon by its record."""
    text = (Path(node.folders.root) / "daemon.json").read_text()
    return (int(json.loads(text)["pid"]),)
