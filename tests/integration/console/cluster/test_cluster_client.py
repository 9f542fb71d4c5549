"""One Kubernetes client for every read: what it imports, and how long it waits."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import gpus, kubeconfig, run_with_server, session

ROOT = Path(__file__).parents[4]
PROGRAM = (
    "import sys\n"
    "from console.cli.kubectl_vgpu import cli\n"
    "code = 0\n"
    "try:\n"
    "    cli(sys.argv[1:])\n"
    "except SystemExit as error:\n"
    "    code = error.code\n"
    "sys.exit(9 if 'kubernetes' in sys.modules else code)\n"
)


def test_a_plain_kubeconfig_imports_no_other_client(tmp_path: Path) -> None:
    """The package costs two seconds of every command, and is not installed everywhere."""

    async def scenario(server: ApiServer) -> None:
        command = ("get", "gpus", "--kubeconfig", kubeconfig(tmp_path, server.url))
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", PROGRAM, *command),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await program.communicate()

        assert (program.returncode, errors) == (0, b"")
        assert b"n0/0" in output

    run_with_server(scenario, "n0")


def test_a_call_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    """A person learns at once that nothing listens at the address."""
    begun = time.monotonic()

    code, output, errors = asyncio.run(gpus(session(kubeconfig(tmp_path, "http://127.0.0.1:1"))))

    assert time.monotonic() - begun < 5
    assert (code, output) == (1, "")
    assert errors.startswith("Unable to connect to the server: ")


def test_a_list_nested_too_deeply_is_no_list(tmp_path: Path) -> None:
    """An answer that no parser takes ends in one line."""

    async def scenario(server: ApiServer) -> None:
        server.answer_next(200, body=b'{"items": [' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"]}")

        code, output, errors = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert (code, output) == (1, "")
        assert errors == (
            "Unable to connect to the server: list gpunodes: the answer is not a list\n"
        )

    run_with_server(scenario, "n0")
