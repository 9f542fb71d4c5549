"""A PostgreSQL server of Debian's, reached by a Unix socket in a folder of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from tests.harness.debian_packages import DATABASE, require

_USER: Final = "postgres"  # the server refuses to run as root; Debian's package makes this user
_PROGRAMS: Final = Path("/usr/lib/postgresql")


def programs() -> Path:
    """Return the folder with initdb and pg_ctl; skip, or fail in the gate, where there is none."""
    require(DATABASE)
    return max(_PROGRAMS.glob("*/bin/initdb")).parent


@contextmanager
def server() -> Iterator[str]:
    """Run a server; yield the URL of its database ``postgres``.

    Its folder is none of pytest's, to which each run that begins anew bars other users.
    """
    with tempfile.TemporaryDirectory(prefix="vgpu-postgres-") as name:
        folder = Path(name)
        if os.getuid() == 0:
            shutil.chown(folder, _USER)
        with _running(folder) as url:
            yield url


@contextmanager
def _running(folder: Path) -> Iterator[str]:
    bin_folder, data, run = programs(), folder / "data", _as_server
    options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", f"--username={_USER}")
    run([bin_folder / "initdb", *options, f"--pgdata={data}"])
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c shared_buffers=64MB"
    start = ["start", "--wait", f"--pgdata={data}", f"--log={folder / 'log'}", "-o", settings]
    run([bin_folder / "pg_ctl", *start])
    try:
        yield f"postgresql://{_USER}@/postgres?host={folder}"
    finally:
        run([bin_folder / "pg_ctl", "stop", "--mode=immediate", f"--pgdata={data}"])


def new_database(server_url: str, name: str) -> str:
    """Create a database and return its URL."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return server_url.replace("/postgres?", f"/{name}?")


def _as_server(command: Sequence[str | Path]) -> None:
    """Run *command* as the user of the server; raise with what it printed where it fails."""
    user = pwd.getpwnam(_USER).pw_uid if os.getuid() == 0 else None
    done = subprocess.run(
        [str(part) for part in command],
        user=user,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout.decode(errors='replace')[-2000:]}")
