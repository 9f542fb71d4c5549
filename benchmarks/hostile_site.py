"""One replica of ``vgpu webhook`` as a process of its own, and its API server in this one."""

import asyncio
import base64
import contextlib
import json
import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compiled import ROOT
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import RefusedError
from tests.fakes.api_server import ApiServer

HOST: Final = "127.0.0.1"
NAMESPACE: Final = "vgpu-admission-system"
SECRETS: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets"
PATIENCE: Final = 60.0  # seconds until a replica answers
POLL: Final = 0.1  # seconds between two looks


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileSite:
    """A running replica, and what its API server knows of it."""

    server: ApiServer
    pid: int
    hooks: int  # the port
    status: int  # the port

    def path(self, hook: str) -> str:
        """Return the path of *hook*, with its secret."""
        return f"{hook}/{self._secret('vgpu-webhook-paths')['token'].decode()}"

    def context(self) -> ssl.SSLContext:
        """Return the TLS of a client that trusts the replica's authority."""
        bundle = self._secret("vgpu-webhook-certificates")["ca.crt"]
        return ssl.create_default_context(cadata=bundle.decode())

    def rss_mib(self) -> float:
        """Return the memory that the process has now."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(found[1]) / 1024 if found else 0.0

    def _secret(self, name: str) -> dict[str, bytes]:
        held: dict[str, Any] = self.server.objects.read(parsed(f"{SECRETS}/{name}"))["data"]
        return {key: base64.b64decode(text) for key, text in held.items()}

    def is_ready(self) -> bool:
        """Say whether its secrets are there, and the process is ready by its own account."""
        try:
            self.path("")
            self.context()
        except (RefusedError, KeyError):
            return False
        return True


@contextlib.asynccontextmanager
async def hostile_site(
    folder: Path, *options: str, tree: Path = ROOT, cores: Sequence[int] = ()
) -> AsyncIterator[HostileSite]:
    """Run a replica of the checkout at *tree*, with more *options*, on some *cores* alone."""
    async with ApiServer() as server:
        hooks, status = _free_port(), _free_port()
        config = folder / "kubeconfig"
        config.write_text(json.dumps(_kubeconfig(server.url)))
        command = [sys.executable, str(tree / "vgpu.py"), "webhook", f"--kubeconfig={config}"]
        command += [f"--listen={HOST}:{hooks}", f"--health={HOST}:{status}", "--drain=1"]
        with (folder / "webhook.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, "--name=127.0.0.1", *options, stdout=log, stderr=log, cwd=tree
            )
        if cores:
            os.sched_setaffinity(process.pid, cores)
        site = HostileSite(server=server, pid=process.pid, hooks=hooks, status=status)
        try:
            await _until_ready(site)
            yield site
            if process.returncode is not None:
                raise RuntimeError(f"the replica ended with {process.returncode}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _until_ready(site: HostileSite) -> None:
    for _ in range(int(PATIENCE / POLL)):
        if site.is_ready() and await _says_ready(site.status):
            return
        await asyncio.sleep(POLL)
    raise TimeoutError(f"no replica answered within {PATIENCE} s")


async def _says_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    with contextlib.closing(writer):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
        return b" 200 " in await reader.readline()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


def _kubeconfig(url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
