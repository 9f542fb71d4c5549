"""Properties of the machines that nodes run on: they are their own, and leave nothing behind."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.api import wait_for
from tests.cluster.host import Host, groups_of
from tests.cluster.node_site import traces

DEFACE = """
mkdir -p /usr/local/vgpu /etc/cdi /var/lib/kubelet /run/containerd /sys/fs/cgroup/memory/kubepods
mount -t tmpfs tmpfs /var/lib/kubelet
echo 0 >/proc/sys/kernel/panic
mknod /dev/nvidia0 c 195 0
sleep 1000 & sleep 1000 & sleep 1000
"""
# Killed by its own hand while a machine of its runs.
KILLED = """
import os, sys
from pathlib import Path
from tests.cluster.host import Host, groups_of
with Host(Path(sys.argv[1])) as host:
    host.process("deface", ["/bin/sh", "-c", sys.argv[2]]).start(lambda: True, within=5)
    while host.run("ps", "ax").count("sleep 1000") < 3:
        pass
    print(os.getpid(), *host.pids(), flush=True)
    os.kill(os.getpid(), 9)
"""


def alive(pids: Iterable[int]) -> list[int]:
    """Return which processes are more than an entry that waits for its parent."""
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found += [pid] if state != "Z" else []
    return found


def test_what_a_host_does_stays_on_it(tmp_path: Path) -> None:
    """Files, mounts, devices, settings of the kernel and processes are gone with the host."""
    before = traces()

    with Host(tmp_path) as host:
        deface = host.process("deface", ["/bin/sh", "-c", DEFACE])
        deface.start(lambda: host.run("ps", "ax").count("sleep 1000") >= 3, within=10)
        during, pids = traces(), host.pids()
        assert (tmp_path / "usr/local/vgpu").is_dir()
        assert (tmp_path / "dev/nvidia0").is_char_device()

    assert {key: during[key] for key in during if key != "groups"} == {
        key: before[key] for key in before if key != "groups"
    }
    assert traces() == before
    wait_for(lambda: not alive(pids))


def test_a_killed_test_leaves_no_process_and_no_mount(tmp_path: Path) -> None:
    """The kernel ends the host of tests that are killed; the next host sweeps its groups."""
    (tmp_path / "killed").mkdir()
    (tmp_path / "next").mkdir()
    before = traces()

    run = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "killed", DEFACE],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
        text=True,
    )

    assert run.returncode == -signal.SIGKILL, run.stderr
    killed, *pids = run.stdout.split()
    assert pids
    wait_for(lambda: not alive(map(int, pids)))
    with Host(tmp_path / "next"):
        assert not groups_of(killed)
    assert traces() == before


def test_a_reboot_keeps_disks_only(tmp_path: Path) -> None:
    """After it the boot id is another, and what memory held is gone."""
    with Host(tmp_path) as host:
        host.run("touch", "/var/lib/kept", "/run/lost", "/dev/lost")
        first, pids = host.boot_id, host.pids()
        assert host.run("cat", "/proc/sys/kernel/random/boot_id").strip() == first
        host.power_off()
        host.boot()

        assert host.run("cat", "/proc/sys/kernel/random/boot_id").strip() == host.boot_id != first
        assert host.run("ls", "/var/lib").split() == ["kept"]
        assert "lost" not in host.run("ls", "/run", "/dev")
        assert not set(pids) & set(host.pids())


def test_signals_reach_the_process_itself(tmp_path: Path) -> None:
    """A component of a host ends politely, stands still and is killed as any other."""
    with Host(tmp_path) as host:
        polite = 'trap "echo bye; exit" TERM; echo hello; while :; do sleep 0.1; done'
        process = host.process("polite", ["/bin/sh", "-c", polite])
        process.start(lambda: "hello" in process.tail(), within=5)
        for _ in range(20):  # one that stops after it was to go on is not seen at the first
            process.pause()
            assert "(stopped)" in Path(f"/proc/{process.pid}/status").read_text()
            process.resume()
        process.stop()
        assert process.tail() == "hello\nbye"

        process.start(lambda: process.tail().count("hello") == 2, within=5)
        pid = process.pid
        process.kill()
        assert not Path(f"/proc/{pid}").exists()
        assert process.tail().count("bye") == 1
