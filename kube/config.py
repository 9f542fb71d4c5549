"""Address and credentials of the API server, from a pod's mounts or a kubeconfig."""

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import yaml

from kube.errors import ConfigError, shorten

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LARGEST_FILE: Final = 4 << 20  # bytes of a kubeconfig; one of a thousand clusters fits
DEEPEST_FILE: Final = 64  # levels of nesting in a kubeconfig; kubectl writes 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """Who a call is made as, where the caller has the right to act as somebody else."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()  # key and value; a key may have several

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of the API server; that of groups may come several times."""
        return (
            ("Impersonate-User", self.user),
            *(("Impersonate-Group", group) for group in self.groups),
            *((("Impersonate-Uid", self.uid),) if self.uid else ()),
            *((f"Impersonate-Extra-{quote(key, safe='')}", value) for key, value in self.extra),
        )


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
    proxy: str | None = field(default=None, repr=False)  # http(s) address; may have a password
    acting: Impersonation | None = None  # None: as oneself


def in_cluster(
    directory: Path = SERVICE_ACCOUNT, *, environ: Mapping[str, str] = os.environ
) -> Access:
    """Read what kubelet gives every pod.

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
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _Context(msgspec.Struct):
    cluster: str
    user: str | None = None
    namespace: str | None = None


class _User(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: dict[str, object] | None = None
    auth_provider: dict[str, object] | None = None
    username: str | None = None
    as_user: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None

    @property
    def acting(self) -> Impersonation | None:
        """Return who its calls are made as; ``None`` for itself."""
        if not self.as_user:
            return None
        extra = (self.as_user_extra or {}).items()
        return Impersonation(
            user=self.as_user,
            groups=tuple(self.as_groups or ()),
            uid=self.as_uid or "",
            extra=tuple((key, value) for key, values in extra for value in values),
        )


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _File(msgspec.Struct):
    current_context: str | None = msgspec.field(default=None, name="current-context")
    clusters: list[_NamedCluster] | None = None  # kubectl writes null for none
    contexts: list[_NamedContext] | None = None
    users: list[_NamedUser] | None = None


_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class _Located(Generic[_Entry]):
    """An entry, and the file that it was read from."""

    entry: _Entry
    file: Path

    def file_named(self, name: str | None) -> Path | None:
        """Return the file *name*, which is relative to the folder of the kubeconfig."""
        return self.file.parent / name if name else None


@dataclass(slots=True)
class _MergedFiles:
    """The entries of several kubeconfigs by name; of two with one name the first counts."""

    place: str  # the paths of the files, for messages
    current_context: str = ""
    clusters: dict[str, _Located[_Cluster]] = field(default_factory=dict)
    contexts: dict[str, _Located[_Context]] = field(default_factory=dict)
    users: dict[str, _Located[_User]] = field(default_factory=dict)

    def add(self, file: _File, path: Path) -> None:
        """Add the entries of *file* whose names are new."""
        self.current_context = self.current_context or file.current_context or ""
        for cluster in file.clusters or ():
            self.clusters.setdefault(cluster.name, _Located(cluster.cluster, path))
        for context in file.contexts or ():
            self.contexts.setdefault(context.name, _Located(context.context, path))
        for user in file.users or ():
            self.users.setdefault(user.name, _Located(user.user or _User(), path))


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeconfigLogin:
    """One context of a kubeconfig: the address, and how its user authenticates."""

    access: Access  # without the credentials that `exec` or `auth_provider` is to return
    place: str  # the file and the user, for messages
    exec: Mapping[str, object] | None = field(default=None, repr=False)
    auth_provider: Mapping[str, object] | None = field(default=None, repr=False)


def default_kubeconfigs(*, environ: Mapping[str, str] = os.environ) -> str:
    """Return the files that kubectl reads, separated as in ``$KUBECONFIG``, whether they exist."""
    return environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def existing_files(files: str) -> list[Path]:
    """Return those of *files*, paths separated as in ``$KUBECONFIG``, that exist."""
    paths = (Path(file).expanduser() for file in files.split(os.pathsep) if file)
    return [path for path in paths if path.is_file()]


def from_kubeconfig(paths: Sequence[Path], context: str | None = None) -> Access:
    """Read *context*, or the current one, of the kubeconfigs at *paths*, merged as by kubectl.

    Files they name are relative to their own folder, as for kubectl. Raises :class:`ConfigError`
    when one is unreadable or its user authenticates with a program or an auth-provider.
    """
    login = kubeconfig_login(paths, context)
    instead = (
        'use a token for that user instead: kubectl config set-credentials NAME --token="$(kubectl'
        ' create token SERVICEACCOUNT)"'
    )
    if login.exec is not None:
        raise ConfigError(
            f"{login.place} authenticates with the exec plugin {login.exec.get('command')!r};"
            f" plugins are not supported: {instead}"
        )
    if login.auth_provider is not None:
        raise ConfigError(
            f"{login.place} authenticates with the auth-provider"
            f" {login.auth_provider.get('name')!r}, which is not supported; {instead}"
        )
    return login.access


def kubeconfig_login(paths: Sequence[Path], context: str | None = None) -> KubeconfigLogin:
    """Read *context*, or the current one, of the kubeconfigs at *paths*, merged as by kubectl.

    Raises :class:`ConfigError` when a file is unreadable, or the context is incomplete.
    """
    merged = _MergedFiles(os.pathsep.join(map(str, paths)))
    for path in paths:
        merged.add(_parse_file(path), path)
    chosen = _chosen_context(merged, context)
    cluster = _entry_named(chosen.cluster, merged.clusters, f"{merged.place}: cluster")
    user = _Located(_User(), cluster.file)
    if chosen.user:
        user = _entry_named(chosen.user, merged.users, f"{merged.place}: user")
    place = f"{user.file}: user {chosen.user!r}"
    if user.entry.username:
        raise ConfigError(
            f"{place} authenticates with a password, which API servers no longer accept;"
            " accepted: a client certificate, a token, or an exec plugin"
        )
    return KubeconfigLogin(
        access=Access(
            url=_server_url(cluster.entry.server, f"{cluster.file}: cluster {chosen.cluster!r}"),
            namespace=chosen.namespace or "default",
            ca=_pem(cluster, cluster.entry.certificate_authority_data)
            or cluster.file_named(cluster.entry.certificate_authority),
            token=user.entry.token or user.file_named(user.entry.token_file),
            certificate=_pem(user, user.entry.client_certificate_data)
            or user.file_named(user.entry.client_certificate),
            key=_pem(user, user.entry.client_key_data) or user.file_named(user.entry.client_key),
            server_name=cluster.entry.tls_server_name or None,
            verify=not cluster.entry.insecure_skip_tls_verify,
            proxy=_proxy(cluster, chosen.cluster),
            acting=user.entry.acting,
        ),
        place=place,
        exec=user.entry.exec,
        auth_provider=user.entry.auth_provider,
    )


def _parse_file(path: Path) -> _File:
    text = _text(path)
    try:
        content = _parse_yaml(text)
        return _File() if content is None else msgspec.convert(content, type=_File)
    except (yaml.YAMLError, ValueError) as error:  # msgspec.ValidationError is a ValueError
        why = shorten(" ".join(str(error).split()))
        raise ConfigError(f"{path}: not a valid kubeconfig: {why}") from error


def _parse_yaml(text: str) -> object:
    """Return the value of *text*; raises ``ValueError`` or ``yaml.YAMLError``."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):  # a loop; `load` is a recursion in C
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_FILE:
            raise ValueError(f"nested more than {DEEPEST_FILE} levels deep")
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _chosen_context(merged: _MergedFiles, context: str | None) -> _Context:
    name = context or merged.current_context
    if not merged.contexts:
        raise ConfigError(
            f"{merged.place}: it has no contexts; accepted: a kubeconfig with contexts, clusters"
            " and users"
        )
    if not name:
        raise ConfigError(
            f"{merged.place}: current-context is not set; the file has"
            f" {_names_text(merged.contexts)}; accepted: --context with the name of one"
        )
    return _entry_named(name, merged.contexts, f"{merged.place}: context").entry


def _entry_named(name: str, entries: Mapping[str, _Entry], place: str) -> _Entry:
    if name in entries:
        return entries[name]
    raise ConfigError(f"{place} {name!r} does not exist; the file has {_names_text(entries)}")


def _names_text(names: Iterable[str]) -> str:
    return shorten(", ".join(sorted(names))) or "none"


def _server_url(server: str, place: str) -> str:
    if not _is_http_url(server):
        raise ConfigError(
            f"{place}: server {shorten(server)!r} is not an address; accepted: https://HOST:PORT"
        )
    return server.rstrip("/")


def _proxy(cluster: _Located[_Cluster], name: str) -> str | None:
    proxy = cluster.entry.proxy_url
    if proxy and not _is_http_url(proxy):
        raise ConfigError(
            f"{cluster.file}: cluster {name!r}: proxy-url {shorten(proxy)!r} is not supported;"
            " accepted: http://HOST:PORT or https://HOST:PORT; or run `kubectl proxy` and set"
            " server to its address"
        )
    return proxy or None


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:  # a port out of range, or an unclosed bracket
        return False
    return url.scheme in {"http", "https"} and bool(url.hostname) and port != 0


def _pem(source: _Located[_Entry], data: str | None) -> bytes | None:
    """Return inline *data* decoded; it wins over a file, as for kubectl."""
    try:
        return base64.b64decode(data, validate=True) if data else None
    except ValueError as error:  # not base64, or not ASCII
        path = source.file
        raise ConfigError(f"{path}: certificate or key data is not base64: {error}") from error


def _text(path: Path) -> str:
    """Return the content of a file of at most :data:`LARGEST_FILE` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError(f"cannot read {path}: it has more than {LARGEST_FILE} bytes")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {shorten(str(error))}") from error
