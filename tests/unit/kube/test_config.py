"""Where the API server is and who we are, or a sentence that says what to do instead."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.config import Access, from_kubeconfig, in_cluster
from kube.errors import ConfigError


def kubeconfig(folder: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    document = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
            {"name": "broken", "context": {"cluster": "lost", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def account(folder: Path) -> Path:
    for name in ("token", "ca.crt", "namespace"):
        (folder / name).write_text(f"{name}-of-pod\n")
    return folder


@pytest.mark.parametrize(
    ("host", "url"),
    [
        pytest.param("10.96.0.1", "https://10.96.0.1:443", id="ipv4"),
        pytest.param("fd00::1", "https://[fd00::1]:443", id="ipv6"),
    ],
)
def test_in_cluster(tmp_path: Path, host: str, url: str) -> None:
    """A pod finds the server in its environment and itself in the mounted account."""
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}

    access = in_cluster(account(tmp_path), environ=environ)

    assert access == Access(
        url=url,
        namespace="namespace-of-pod",
        ca=tmp_path / "ca.crt",
        token=tmp_path / "token",
    )


def test_outside_a_pod(tmp_path: Path) -> None:
    """Without kubelet's environment the error names what is missing."""
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster(account(tmp_path), environ={})


def test_a_kubeconfig_with_everything_inline(tmp_path: Path) -> None:
    """Inline data is decoded, and wins over a file."""
    pem = base64.b64encode(b"PEM").decode()
    path = kubeconfig(
        tmp_path,
        cluster={"certificate-authority-data": pem, "certificate-authority": "ca.crt"},
        user={"client-certificate-data": pem, "client-key-data": pem},
    )

    access = from_kubeconfig((path,))

    assert access == Access(
        url="https://api:6443", namespace="team-a", ca=b"PEM", certificate=b"PEM", key=b"PEM"
    )


def test_a_kubeconfig_with_files(tmp_path: Path) -> None:
    """File names are relative to the kubeconfig's folder, unless absolute."""
    path = kubeconfig(
        tmp_path,
        cluster={"certificate-authority": "pki/ca.crt", "tls-server-name": "kubernetes"},
        user={"tokenFile": "/run/token"},
    )

    access = from_kubeconfig((path,), context="here")

    assert access.ca == tmp_path / "pki/ca.crt"
    assert access.token == Path("/run/token")
    assert access.server_name == "kubernetes"


def test_a_kubeconfig_that_trusts_blindly(tmp_path: Path) -> None:
    """Skipping verification is taken as written."""
    path = kubeconfig(
        tmp_path, cluster={"insecure-skip-tls-verify": True}, user={"token": "secret"}
    )

    access = from_kubeconfig((path,))

    assert not access.verify
    assert access.token == "secret"  # noqa: S105 - a test's token
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        pytest.param(
            {"exec": {"command": "aws", "apiVersion": "v1"}},
            r"'aws'.*kubectl config set-credentials",
            id="exec-plugin",
        ),
        pytest.param({"auth-provider": {"name": "gcp"}}, "auth-provider", id="auth-provider"),
        pytest.param({"username": "a", "password": "b"}, "password", id="password"),
        pytest.param({"client-key-data": "!"}, "base64", id="bad-base64"),
        pytest.param({"token": 7}, "token", id="wrong-type"),
    ],
)
def test_what_a_kubeconfig_may_not_ask(tmp_path: Path, user: dict[str, Any], message: str) -> None:
    """What we do not do is refused with the way out."""
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig((kubeconfig(tmp_path, cluster={}, user=user),))


@pytest.mark.parametrize(
    ("context", "message"),
    [
        pytest.param(
            "elsewhere", "context 'elsewhere' does not exist; the file has broken, here", id="a"
        ),
        pytest.param(
            "broken", "cluster 'lost' does not exist; the file has c", id="dangling-cluster"
        ),
    ],
)
def test_a_context_that_leads_nowhere(tmp_path: Path, context: str, message: str) -> None:
    """The error lists what there is."""
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig((kubeconfig(tmp_path, cluster={}, user={}),), context)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("clusters: null\nusers: null\n", id="as-kubectl-writes-nothing"),
        pytest.param("[1", id="no-yaml"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    """Whatever the file holds, the error is ours and names it."""
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ConfigError, match=str(path)):
        from_kubeconfig((path,))


def test_a_missing_file(tmp_path: Path) -> None:
    """A path that does not exist is an error of ours."""
    with pytest.raises(ConfigError, match="cannot read"):
        from_kubeconfig((tmp_path / "none",))
