"""Kubeconfigs: which cluster, which user, and what is wrong with a file."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.cluster.kubeconfig_files import access_of
from kube.config import LARGEST_FILE, SERVICE_ACCOUNT
from kube.errors import ConfigError
from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import gpus, kubeconfig, run_with_server, session

ROOT = Path(__file__).parents[4]


def written(path: Path, *, current: str | None = None) -> str:
    """Write a kubeconfig of one context named after the file, and return its path."""
    name = path.name
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"https://{name}"}}],
        "users": [{"name": name, "user": {"token": f"of-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}}],
    }
    path.write_text(json.dumps(document | ({"current-context": current} if current else {})))
    return str(path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(
            None, "does not exist; name a file with --kubeconfig or KUBECONFIG", id="none"
        ),
        pytest.param(b"{", "config: not a valid kubeconfig: ", id="broken"),
        pytest.param(b"[]", "config: not a valid kubeconfig: Expected `object`", id="no-items"),
        pytest.param(b"[1]", "config: not a valid kubeconfig: Expected `object`", id="list"),
        pytest.param(b"clusters: {a: 1}", "not a valid kubeconfig: Expected `array", id="mapping"),
        pytest.param(b"contexts: [{name: a, context: {clus", "not a valid kubeconfig", id="cut"),
        pytest.param(b"", "config: it has no contexts; accepted: a kubeconfig with", id="empty"),
        pytest.param(b"\xff", "cannot read ", id="binary"),
        pytest.param(b"[" * 100, "nested more than 64 levels deep", id="deep"),
        pytest.param(b"d: 2001-99-99", "not a valid kubeconfig: month must be", id="date"),
        pytest.param(b"#" * (LARGEST_FILE + 1), f"more than {LARGEST_FILE} bytes", id="huge"),
        pytest.param(
            b"{contexts: [{name: a, context: {cluster: c}}]}",
            "current-context is not set; the file has a; accepted: --context with the name of one",
            id="no-context",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    content: bytes | None, text: str, tmp_path: Path
) -> None:
    """Any content ends in one line that names the file, and in code 1."""
    path = tmp_path / "config"
    if content is not None:
        path.write_bytes(content)

    code, output, errors = asyncio.run(gpus(session(str(path))))

    assert (code, output) == (1, "")
    assert errors.startswith("error: ")
    assert str(path) in errors
    assert text in errors
    assert len(errors.splitlines()) == 1


def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    """The usual slip of somebody with many clusters."""
    commands = session(kubeconfig(tmp_path, "http://127.0.0.1:1"), context="there")

    code, _, errors = asyncio.run(gpus(commands))

    assert code == 1
    assert "context 'there' does not exist; the file has here" in errors


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ({"server": "http://a:1", "proxy-url": "socks5://a:1"}, "accepted: http://HOST:PORT or"),
        ({"server": "nowhere"}, "server 'nowhere' is not an address; accepted: https://HOST:PORT"),
        ({"server": "https://127.0.0.1:99999"}, "is not an address; accepted: https://HOST:PORT"),
        ({"server": "https://["}, "is not an address; accepted: https://HOST:PORT"),
    ],
    ids=["proxy", "no-scheme", "port", "bracket"],
)
def test_a_server_without_a_usable_address_is_named(
    cluster: dict[str, str], text: str, tmp_path: Path
) -> None:
    """A slip in the file ends in one line, never in a traceback."""
    path = Path(kubeconfig(tmp_path, cluster["server"]))
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"] = cluster
    path.write_text(json.dumps(document))

    code, output, errors = asyncio.run(gpus(session(str(path))))

    assert (code, output) == (1, "")
    assert errors.startswith(f"error: {path}: cluster 'c': ")
    assert text in errors
    assert len(errors.splitlines()) == 1


def test_a_token_that_no_header_carries_is_an_error(tmp_path: Path) -> None:
    """A file with two lines in place of a token is named before anything is sent."""

    async def scenario(server: ApiServer) -> None:
        config = kubeconfig(tmp_path, server.url, token="a\nb")  # noqa: S106 - a test's token

        code, output, errors = await gpus(session(config))

        assert (code, output) == (1, "")
        assert "the token has a line break or another control character" in errors

    assert not run_with_server(scenario, "n0").requests


def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    """Requests go to the address of `proxy-url`, not to that of `server`."""
    path = Path(kubeconfig(tmp_path, "http://cluster.invalid"))
    document = json.loads(path.read_text())

    async def scenario(server: ApiServer) -> None:
        document["clusters"][0]["cluster"]["proxy-url"] = server.url
        await asyncio.to_thread(path.write_text, json.dumps(document))

        code, output, _ = await gpus(session(str(path)))

        assert (code, len(output.splitlines())) == (0, 2)

    run_with_server(scenario, "n0")


def test_files_are_merged_as_by_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file that names an entry wins, and so does the first current-context."""
    files = (
        str(tmp_path / "missing"),
        written(tmp_path / "a"),
        written(tmp_path / "b", current="b"),
        written(tmp_path / "d", current="d"),
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))

    current = asyncio.run(access_of(None, None))
    named = asyncio.run(access_of(None, "d"))

    assert (current.url, current.token) == ("https://a", "of-b")
    assert (named.url, named.token) == ("https://a", "of-d")


def test_names_in_a_file_are_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of KUBECONFIG may lie in a folder of its own."""
    (tmp_path / "other").mkdir()
    first = written(tmp_path / "a", current="x")
    second = tmp_path / "other" / "x"
    second.write_text(
        json.dumps(
            {
                "users": [{"name": "u", "user": {"tokenFile": "token"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{second}")

    access = asyncio.run(access_of(None, None))

    assert (access.url, access.token) == ("https://a", tmp_path / "other" / "token")


def test_the_option_goes_before_the_variable_and_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for kubectl: --kubeconfig, then KUBECONFIG, then ~/.kube/config."""
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube" / "config", current="config")
    option = written(tmp_path / "option", current="option")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "variable", current="variable"))

    assert asyncio.run(access_of(option, None)).url == "https://option"
    assert asyncio.run(access_of(None, None)).url == "https://variable"
    monkeypatch.delenv("KUBECONFIG")
    assert asyncio.run(access_of(None, None)).url == "https://config"


def test_a_pod_without_a_kubeconfig_uses_its_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod whose account is not mounted the error names the file that is missing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(ConfigError, match=str(SERVICE_ACCOUNT / "namespace")):
        asyncio.run(access_of(None, None))


def test_a_password_is_refused(tmp_path: Path) -> None:
    """API servers take none, so the error says what they take."""
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", username="amy", password="p")  # noqa: S106

    code, _, errors = asyncio.run(gpus(session(config)))

    assert code == 1
    assert "user 'u' authenticates with a password" in errors
    assert "accepted: a client certificate, a token, or an exec plugin" in errors


WITHOUT_PACKAGE = (
    "import sys\n"
    "sys.modules['kubernetes'] = None\n"
    "from console.cli.kubectl_vgpu import main\n"
    "main()\n"
)


@pytest.mark.parametrize(
    ("user", "kind"),
    [
        ({"exec": {"apiVersion": "v1", "command": "/nowhere"}}, "an exec plugin"),
        ({"auth-provider": {"name": "oidc"}}, "an auth-provider"),
    ],
    ids=["exec", "auth-provider"],
)
def test_a_package_that_is_missing_is_named(
    user: dict[str, object], kind: str, tmp_path: Path
) -> None:
    """A person who installed without the extra reads what to install."""
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", **user)

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE, "get", "nodes", "--kubeconfig", config],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {config}: user 'u' authenticates with {kind}, which needs the Python package"
        " kubernetes; install it with pip install '.[kubectl]'\n"
    )


def test_a_kubeconfig_may_name_whom_to_act_as(tmp_path: Path) -> None:
    """Kubectl obeys it; who read as himself would see more, or less, than kubectl shows."""
    user = {
        "token": "secret",
        "as": "bo",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"reason": ["x", "y"]},
    }

    access = asyncio.run(access_of(kubeconfig(tmp_path, "http://127.0.0.1:1", **user), None))

    assert access.acting is not None
    assert access.acting.headers == (
        ("Impersonate-User", "bo"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-reason", "x"),
        ("Impersonate-Extra-reason", "y"),
    )


@pytest.mark.parametrize("user", [{"as-uid": ""}, {"as": ""}, {"as": None, "as-groups": ["a"]}])
def test_a_kubeconfig_without_such_a_name_acts_as_its_user(
    user: dict[str, object], tmp_path: Path
) -> None:
    """Groups alone are nobody."""
    written = {"token": "secret"} | user
    access = asyncio.run(access_of(kubeconfig(tmp_path, "http://127.0.0.1:1", **written), None))

    assert access.acting is None
