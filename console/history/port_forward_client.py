"""A port of this machine that leads to the console: ``kubectl port-forward`` as a child.

The API server knows two protocols for it, of which kubectl picks the one that the server has. Who
runs the plugin has kubectl.
"""

import asyncio
import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from typing import Final

from console.cluster.cluster_client import ClusterTarget
from kube.errors import ConfigError, UnreachableError, shorten

SERVICE: Final = "vgpu-console"
PORT: Final = 8444
GRACE: Final = 3.0  # seconds in which a child may end before it is killed
_LONGEST_NOTE: Final = 4096  # bytes of what the child wrote
_FORWARDING: Final = re.compile(rb"^Forwarding from 127\.0\.0\.1:(\d+) -> ")


@dataclass(slots=True)
class _Child:
    """A running port-forward."""

    process: asyncio.subprocess.Process
    port: int
    drain: asyncio.Task[None]  # of its output, so that the pipe never fills


class PortForward:
    """The way to the console's Service, begun when it is needed, and again where it ended."""

    def __init__(self, target: ClusterTarget, system: str) -> None:
        """Forward to the Service in the namespace *system* of *target*."""
        self._target = target
        self._system = system
        self._child: _Child | None = None

    async def port(self) -> int:
        """Return the local port.

        Raises :class:`ConfigError` where there is no kubectl, :class:`UnreachableError` where it
        cannot forward.
        """
        child = self._child
        if child is not None and child.process.returncode is None:
            return child.port
        await self.close()
        self._child = await self._begin()
        return self._child.port

    async def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.drain.cancel()
            await _end(child.process)

    async def _begin(self) -> _Child:
        process = await asyncio.create_subprocess_exec(
            *_command(self._target, self._system),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(self._target),
        )
        output = process.stdout
        try:
            async with asyncio.timeout(self._target.seconds):
                port, note = (0, b"") if output is None else await _announced(output)
        except TimeoutError as error:
            await _end(process)
            message = f"kubectl port-forward: not ready within {self._target.seconds:g} s"
            raise UnreachableError(message, sent=False) from error
        except BaseException:
            await _end(process)
            raise
        if output is None or not port:
            await _end(process)
            text = shorten(" ".join(note.decode(errors="replace").split()))
            raise UnreachableError(f"kubectl port-forward: {_with_advice(text)}", sent=False)
        return _Child(process, port, asyncio.create_task(_drain(output)))


def _command(target: ClusterTarget, system: str) -> tuple[str, ...]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigError(
            "kubectl is not on the path, and the way to the console goes through its port-forward;"
            " accepted: kubectl on the path, or --console https://HOST"
        )
    context = () if target.context is None else (f"--context={target.context}",)
    return (
        *(kubectl, "port-forward", f"--namespace={system}", "--address=127.0.0.1", *context),
        *(f"service/{SERVICE}", f":{PORT}"),
    )


def _environment(target: ClusterTarget) -> dict[str, str]:
    """Return the environment of the child: its option names one kubeconfig only."""
    kubeconfig = {} if target.kubeconfig is None else {"KUBECONFIG": target.kubeconfig}
    return {**os.environ, **kubeconfig}


async def _announced(output: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the port that the child names, or 0 and what it wrote before it ended."""
    note = b""
    while line := await output.readline():
        found = _FORWARDING.match(line)
        if found is not None:
            return int(found[1]), note
        note = (note + line)[-_LONGEST_NOTE:]
    return 0, note


async def _drain(output: asyncio.StreamReader) -> None:
    while await output.read(_LONGEST_NOTE):
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _with_advice(text: str) -> str:
    """Add to what kubectl says what would help."""
    if "NotFound" in text and SERVICE in text:
        return f"{text}; the console is a component of its own, which is not installed there"
    if "Forbidden" in text or "forbidden" in text:
        return f"{text}; the ClusterRole vgpu-console-user grants it"
    return text or "it ended without a word"
