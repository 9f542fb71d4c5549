"""Stands in for ``kubectl port-forward``: passes connections on to the port that a variable names.

Like kubectl it prints the port that it listens on, and ends with a message where the object does
not exist.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = "VGPU_TEST_FORWARD_TO"  # a port; empty: there is no such Service
SECONDS = "VGPU_TEST_FORWARD_SECONDS"  # after which it ends, as where the pod is deleted
CALLS = "VGPU_TEST_FORWARD_CALLS"  # a file that gets a line of arguments for each call


def install(folder: Path, to: int | None) -> Mapping[str, str]:
    """Put a program ``kubectl`` in *folder*; return the variables that it is found and led by."""
    program = folder / "kubectl"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from {__name__} import main\nmain()\n"
    )
    program.chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        TARGET: "" if to is None else str(to),
        CALLS: str(folder / "calls"),
    }


def main() -> None:
    with Path(os.environ[CALLS]).open("a", encoding="utf-8") as file:
        file.write(" ".join([*sys.argv[1:], os.environ.get("KUBECONFIG", "")]) + "\n")
    if not os.environ[TARGET]:
        sys.stderr.write('Error from server (NotFound): services "vgpu-console" not found\n')
        sys.exit(1)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_forward(int(os.environ[TARGET])))


async def _forward(to: int) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sys.stdout.write(f"Handling connection for {to}\n")
        sys.stdout.flush()
        there, back = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"Forwarding from 127.0.0.1:{port} -> 8444\n")
    sys.stdout.flush()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(float(os.environ.get(SECONDS, "600"))):
            await server.serve_forever()
    sys.stderr.write("error: lost connection to pod\n")
    os._exit(1)  # with its connections, whatever they wait for


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    writer.close()
