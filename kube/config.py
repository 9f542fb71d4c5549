"""Address and credentials of the API server, from a pod's mounts or a kubeconfig."""

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import yaml

from kube.errors import ConfigError, shorten

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach one API server; a :class:`Path` is read again when the file changes."""

    url: str
    namespace: str = "default"  # of our pod, or of the kubeconfig's context
    ca: bytes | Path | None = None  # PEM; None: the system's authorities
    token: str | Path | None = field(default=None, repr=False)
    certificate: bytes | Path | None = None  # PEM
    key: bytes | Path | None = field(default=None, repr=False)  # PEM
    server_name: str | None = None  # expected in the server's certificate, where not the host
    verify: bool = True  # the server's certificate


def in_cluster(
    directory: Path = SERVICE_ACCOUNT, *, environ: Mapping[str, str] = os.environ
) -> Access:
    """Return the access of our pod, from its environment and its ServiceAccount volume.

    Raises :class:`ConfigError` outside a pod.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set"
        )
    return Access(
        url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_text(directory / "namespace").strip(),
        ca=directory / "ca.crt",
        token=directory / "token",
    )


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Context(msgspec.Struct):
    cluster: str
    user: str = ""
    namespace: str = ""


class _Exec(msgspec.Struct):
    command: str = ""


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None
    auth_provider: dict[str, object] | None = None
    username: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _File(msgspec.Struct):
    current_context: str = msgspec.field(default="", name="current-context")
    clusters: list[_NamedCluster] | None = None  # kubectl writes null for none
    contexts: list[_NamedContext] | None = None
    users: list[_NamedUser] | None = None


_Entry = TypeVar("_Entry")


def from_kubeconfig(path: Path, context: str | None = None) -> Access:
    """Read *context*, or the current one, of the kubeconfig at *path*.

    Relative paths in it start from its own folder, as for kubectl. Raises :class:`ConfigError` when
    it is unreadable or needs an exec plugin, an auth provider, a password or a proxy.
    """
    file = _parse_file(path)
    name = context or file.current_context
    chosen = _entry_named(
        name, {c.name: c.context for c in file.contexts or ()}, f"{path}: context"
    )
    clusters = {c.name: c.cluster for c in file.clusters or ()}
    users = {u.name: u.user for u in file.users or ()}
    cluster = _entry_named(chosen.cluster, clusters, f"{path}: cluster")
    user = _entry_named(chosen.user, users, f"{path}: user") if chosen.user else _User()
    _refuse_unsupported(cluster, user, f"{path}: user {chosen.user!r}")
    return Access(
        url=cluster.server.rstrip("/"),
        namespace=chosen.namespace or "default",
        ca=_pem(path, cluster.certificate_authority_data, cluster.certificate_authority),
        token=user.token or (path.parent / user.token_file if user.token_file else None),
        certificate=_pem(path, user.client_certificate_data, user.client_certificate),
        key=_pem(path, user.client_key_data, user.client_key),
        server_name=cluster.tls_server_name or None,
        verify=not cluster.insecure_skip_tls_verify,
    )


def _parse_file(path: Path) -> _File:
    try:
        return msgspec.convert(yaml.safe_load(_text(path)) or {}, type=_File)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: not a valid kubeconfig: {shorten(str(error))}") from error


def _entry_named(name: str, entries: Mapping[str, _Entry], place: str) -> _Entry:
    if name in entries:
        return entries[name]
    raise ConfigError(f"{place} {name!r} does not exist; the file has {_names_text(entries)}")


def _names_text(names: Iterable[str]) -> str:
    return shorten(", ".join(sorted(names))) or "none"


def _refuse_unsupported(cluster: _Cluster, user: _User, place: str) -> None:
    """Refuse exec plugins, auth providers, passwords and proxies."""
    instead = (
        'use a token for that user instead: kubectl config set-credentials NAME --token="$(kubectl'
        ' create token SERVICEACCOUNT)"'
    )
    if user.exec is not None:
        raise ConfigError(
            f"{place} authenticates with the exec plugin {user.exec.command!r}; plugins are"
            f" not supported: {instead}"
        )
    if user.auth_provider is not None or user.username:
        raise ConfigError(
            f"{place} authenticates with an auth-provider or a password, which API servers no"
            f" longer accept; {instead}"
        )
    if cluster.proxy_url:
        raise ConfigError(
            f"{place}: proxy-url {cluster.proxy_url!r} is not supported; run `kubectl proxy` and"
            " set server to its address"
        )


def _pem(path: Path, data: str, file: str) -> bytes | Path | None:
    """Return inline *data* decoded, else *file* beside *path*; inline wins, as for kubectl."""
    if not data:
        return path.parent / file if file else None
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{path}: certificate or key data is not base64: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {shorten(str(error))}") from error
