"""Kubeconfigs: which cluster, who somebody is, and what is wrong with a file."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import gpus, kubeconfig, served, session


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            None, "does not exist; name a file with --kubeconfig or KUBECONFIG", id="none"
        ),
        pytest.param("{", "kubeconfig: ", id="broken"),
        pytest.param("[]", "not a kubeconfig", id="list"),
        pytest.param("", "not a kubeconfig", id="empty"),
        pytest.param("{clusters: [], contexts: [], users: []}", "kubeconfig: ", id="no-context"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told(
    text: str | None, said: str, tmp_path: Path
) -> None:
    """Whatever stands in it, one line and code 1."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)

    code, output, errors = asyncio.run(gpus(session(str(path))))

    assert (code, output) == (1, "")
    assert errors.startswith("error: ")
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    """The usual slip of somebody with many clusters."""
    asked = session(kubeconfig(tmp_path, "http://127.0.0.1:1"), context="there")

    code, _, errors = asyncio.run(gpus(asked))

    assert code == 1
    assert "there" in errors


def test_a_plugin_of_the_kubeconfig_logs_in(tmp_path: Path) -> None:
    """Managed clusters give their people no token but a program that prints one."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made"},
    }
    program = ["-c", f"print({json.dumps(credential)!r})"]
    plugin = {"apiVersion": credential["apiVersion"], "command": sys.executable, "args": program}

    async def scenario(server: ApiServer) -> None:
        server.tokens = {"made"}
        config = kubeconfig(tmp_path, server.url, exec=plugin)

        code, output, errors = await gpus(session(config))

        assert (code, errors, len(output.splitlines())) == (0, "", 2)

    served(scenario, "n0")


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param({"server": "http://127.0.0.1:1", "proxy-url": "socks5://a:1"}, id="proxy"),
        pytest.param({"server": "nowhere"}, id="no-scheme"),
        pytest.param({"server": "https://127.0.0.1:99999"}, id="port"),
    ],
)
def test_a_server_that_cannot_be_asked_is_told(cluster: dict[str, str], tmp_path: Path) -> None:
    """A slip in the file ends in one line, never in a traceback."""
    path = Path(kubeconfig(tmp_path, cluster["server"]))
    written = json.loads(path.read_text())
    written["clusters"][0]["cluster"] = cluster
    path.write_text(json.dumps(written))

    code, output, errors = asyncio.run(gpus(session(str(path))))

    assert (code, output) == (1, "")
    assert errors.startswith("Unable to connect to the server: ")
    assert len(errors.splitlines()) == 1
