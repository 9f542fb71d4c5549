"""Exec plugins and auth-providers: what they return, and what happens when they fail."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from console.cluster.login_client import plugin_access
from kube.config import Access, KubeconfigLogin
from kube.errors import ConfigError
from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import gpus, kubeconfig, run_with_server, session

VERSION = "client.authentication.k8s.io/v1"


def credential(status: object) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


def plugin(output: str, program: str = "") -> dict[str, object]:
    """Return an exec section whose program prints *output*, or runs *program*."""
    arguments = ["-c", program or f"print({output!r})"]
    return {"apiVersion": VERSION, "command": sys.executable, "args": arguments}


def login(section: Mapping[str, object], *, provider: bool = False) -> Access:
    access = Access(url="https://a", certificate=b"own", key=b"own")
    return asyncio.run(
        plugin_access(
            KubeconfigLogin(
                access=access,
                place="config: user 'u'",
                exec=None if provider else section,
                auth_provider=section if provider else None,
            )
        )
    )


def test_a_plugin_of_the_kubeconfig_logs_in(tmp_path: Path) -> None:
    """Managed clusters give their people no token but a program that prints one."""

    async def scenario(server: ApiServer) -> None:
        server.tokens = {"made"}
        config = kubeconfig(tmp_path, server.url, exec=plugin(credential({"token": "made"})))

        code, output, errors = await gpus(session(config))

        assert (code, errors, len(output.splitlines())) == (0, "", 2)

    run_with_server(scenario, "n0")


def test_a_plugin_may_return_a_certificate() -> None:
    """It takes the place of the one in the file."""
    pair = {"clientCertificateData": "cert", "clientKeyData": "key"}

    access = login(plugin(credential(pair)))

    assert (access.certificate, access.key, access.token) == (b"cert", b"key", None)


NOTHING = "the exec plugin returned no credentials; accepted: token, or clientCertificateData with"


@pytest.mark.parametrize(
    ("section", "text"),
    [
        pytest.param(plugin("<html>"), "failed to decode process output", id="garbage"),
        pytest.param(plugin(""), "failed to decode process output", id="nothing"),
        pytest.param(plugin("[]"), "malformed response. missing key 'apiVersion'", id="list"),
        pytest.param(plugin("7"), "what the plugin printed, is malformed", id="number"),
        pytest.param(plugin(credential("token")), "Expected `object`", id="status"),
        pytest.param(plugin(credential({"token": 7})), "Expected `str | null`", id="token"),
        pytest.param(plugin(credential({})), NOTHING, id="empty"),
        pytest.param(plugin(credential({"clientCertificateData": "c"})), NOTHING, id="no-key"),
        pytest.param(plugin("", "raise SystemExit('no login')"), "no login", id="fails"),
        pytest.param({"apiVersion": VERSION, "command": "/nowhere"}, "/nowhere", id="missing"),
        pytest.param({"apiVersion": VERSION}, "missing key 'command'", id="no-command"),
        pytest.param(plugin("") | {"args": 7}, "its exec section, or what", id="arguments"),
    ],
)
def test_a_plugin_without_credentials_is_an_error(section: Mapping[str, object], text: str) -> None:
    """The error names the file and the user, and says what the plugin did."""
    with pytest.raises(ConfigError) as raised:
        login(section)

    assert str(raised.value).startswith("config: user 'u': ")
    assert text in str(raised.value)


HANGING = f"""
import asyncio
from console.cluster import login_client
from kube.config import Access, KubeconfigLogin

login_client.LOGIN_SECONDS = 0.2
section = {plugin("", "import time; time.sleep(60)")!r}
login = KubeconfigLogin(
    access=Access(url="https://a"), place="config: user 'u'", exec=section, auth_provider=None
)
asyncio.run(login_client.plugin_access(login))
"""


def test_nobody_waits_for_a_plugin_that_hangs() -> None:
    """The command ends with an error. It runs apart, because it leaves its plugin behind."""
    begun = time.monotonic()

    answer = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, check=False, text=True, timeout=60
    )

    assert answer.stderr.strip().endswith("config: user 'u': no credentials within 0.2 s")
    assert time.monotonic() - begun < 50


def id_token(expires: float) -> str:
    claims = base64.b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"head.{claims}.signature"


def test_an_oidc_token_is_used_while_it_is_valid() -> None:
    """The package refreshes it only once it has expired."""
    token = id_token(time.time() + 3600)

    access = login({"name": "oidc", "config": {"id-token": token}}, provider=True)

    assert access.token == token


@pytest.mark.parametrize(
    ("section", "text"),
    [
        pytest.param({"name": "azure"}, "'azure' is not supported; accepted: oidc", id="azure"),
        pytest.param({}, "None is not supported; accepted: oidc", id="no-name"),
        pytest.param({"name": "oidc"}, "oidc: missing configuration", id="no-config"),
        pytest.param({"name": "oidc", "config": 7}, "auth-provider section", id="number"),
        pytest.param(
            {"name": "oidc", "config": {"id-token": id_token(1)}}, "refresh-token", id="expired"
        ),
    ],
)
def test_a_provider_without_a_token_is_an_error(section: Mapping[str, object], text: str) -> None:
    """The error names the file and the user, and what the section lacks."""
    with pytest.raises(ConfigError) as raised:
        login(section, provider=True)

    assert str(raised.value).startswith("config: user 'u': ")
    assert text in str(raised.value)
