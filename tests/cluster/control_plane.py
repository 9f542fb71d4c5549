"""How a real etcd, kube-apiserver and kube-controller-manager are put together for a test."""

import base64
import contextlib
import json
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.api import Api, ApiError, Json
from tests.cluster.ports import free_port
from tests.cluster.process import Process

ETCD, API_SERVER, CONTROLLERS = "etcd", "kube-apiserver", "kube-controller-manager"

_READY_WITHIN = 60.0  # a few seconds on an idle machine, which one running tests is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a test may want to be different about its control plane.

    `service_accounts` says whether a pod must have a service account. Unless told, it must exactly
    when the controllers run, because it is they who create the accounts.
    """

    controllers: bool = False
    service_accounts: bool | None = None
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    audit_policy: Json | None = None
    api_server_flags: Sequence[str] = ()
    controller_flags: Sequence[str] = ()

    @property
    def needs_accounts(self) -> bool:
        return self.controllers if self.service_accounts is None else self.service_accounts


class ControlPlane:
    """A control plane in one folder, on free loopback ports; entering it starts it.

    Its components can be stopped, killed and started again by name: ports and data stay. It starts
    with the *data* that another one's etcd has written, if there are any.
    """

    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        settings: Settings | None = None,
        *,
        data: Path | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings or Settings()
        self._given = data
        self.token = secrets.token_urlsafe()
        self.scheduler_token = secrets.token_urlsafe()
        self._client, self._peer, self._secure, self._controllers = (free_port() for _ in range(4))
        self.etcd_url = f"http://127.0.0.1:{self._client}"
        self.url = f"https://127.0.0.1:{self._secure}"
        flags = {ETCD: self._etcd_flags(), API_SERVER: self._api_server_flags()}
        if self.settings.controllers:
            flags[CONTROLLERS] = self._controller_flags()
        self._processes = {
            name: Process(name, [programs[name], *given], folder / f"{name}.log")
            for name, given in flags.items()
        }

    def __enter__(self) -> Self:
        self._write_files()
        if self._given is not None:
            copy_data(self._given, self.data)
        try:
            for name in self._processes:
                self.start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def ca_file(self) -> Path:
        """The certificates that verify the API server, which makes its own when it starts."""
        return self._pki / "apiserver.crt"

    @property
    def ca_data(self) -> str:
        """The same in base64, as it stands in a kubeconfig."""
        return base64.b64encode(self.ca_file.read_bytes()).decode()

    @property
    def data(self) -> Path:
        """What its etcd writes, and another's may start with."""
        return self.folder / "etcd"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator."""
        return self.folder / "kubeconfig"

    def api(self, token: str | None = None) -> Api:
        """Return a client, the administrator's unless a token says otherwise."""
        return Api(self.url, token=token or self.token, ca_file=self.ca_file)

    def audit_events(self) -> list[Json]:
        """Return what the API server has audited, if the settings have an audit policy."""
        return [json.loads(line) for line in self._audit_log.read_text().splitlines()]

    def log(self, name: str) -> str:
        """Return everything a component has logged."""
        return self._processes[name].log.read_text(errors="replace")

    def running(self, name: str) -> bool:
        return self._processes[name].running

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def start(self, name: str) -> None:
        """Start a component, for the first time or again, and return once it is ready."""
        ready: Mapping[str, Callable[[], bool]] = {
            ETCD: self._etcd_is_ready,
            API_SERVER: self._api_server_is_ready,
            CONTROLLERS: self._controllers_are_ready,
        }
        self._processes[name].start(ready[name], within=_READY_WITHIN)

    def kill(self, name: str) -> None:
        """End a component as a crash would."""
        self._processes[name].kill()

    def stop(self, name: str | None = None) -> None:
        """Stop one component politely, or everything at once."""
        if name is not None:
            self._processes[name].stop()
            return
        # An API server that is asked to end takes more than a second, for data that nobody wants.
        for process in reversed(self._processes.values()):
            process.kill()
        shutil.rmtree(self.data, ignore_errors=True)  # 130 MB; the logs stay for a post-mortem

    @property
    def _pki(self) -> Path:
        return self.folder / "pki"

    @property
    def _audit_log(self) -> Path:
        return self.folder / "audit.log"

    def _write_files(self) -> None:
        self._pki.mkdir(parents=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.folder / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (self.folder / "tokens.csv").write_text(
            f'{self.token},admin,uid-admin,"system:masters"\n'
            f"{self.scheduler_token},system:kube-scheduler,uid-scheduler,\n"
        )
        (self.folder / "audit-policy").write_text(json.dumps(self.settings.audit_policy))
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "admin", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "admin",
        }
        self.kubeconfig.write_text(json.dumps(config))

    def _etcd_flags(self) -> list[str]:
        peer = f"http://127.0.0.1:{self._peer}"
        return [
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            # A lone member wins every election; the defaults let it wait a second for its own vote.
            "--heartbeat-interval=10",
            "--election-timeout=100",
        ]

    def _api_server_flags(self) -> list[str]:
        flags = [
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={self._secure}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self._pki}",
            f"--service-account-key-file={self.folder / 'sa.key'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--endpoint-reconciler-type=none",
            # As in clusters that kubeadm makes, and unlike the defaults of the program.
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
            *self._gates(),
        ]
        if not self.settings.needs_accounts:
            flags.append("--disable-admission-plugins=ServiceAccount")
        if self.settings.audit_policy is not None:
            flags.append(f"--audit-policy-file={self.folder / 'audit-policy'}")
            flags.append(f"--audit-log-path={self._audit_log}")
        return [*flags, *self.settings.api_server_flags]

    def _controller_flags(self) -> list[str]:
        return [
            # The administrator's, because the user system:kube-controller-manager may do little
            # by itself.
            f"--kubeconfig={self.kubeconfig}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.ca_file}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._controllers}",
            f"--cert-dir={self._pki}",
            "--controllers=*",
            *self._gates(),
            *self.settings.controller_flags,
        ]

    def _gates(self) -> list[str]:
        gates = ",".join(f"{name}={on}" for name, on in self.settings.feature_gates.items())
        return [f"--feature-gates={gates}"] if gates else []

    def _etcd_is_ready(self) -> bool:
        with (
            contextlib.suppress(OSError, HTTPException),
            contextlib.closing(HTTPConnection("127.0.0.1", self._client, timeout=5)) as connection,
        ):
            connection.request("GET", "/health")
            return bool(json.load(connection.getresponse())["health"] == "true")
        return False

    def _api_server_is_ready(self) -> bool:
        # Ready says nothing about the first namespace, which a loop of the server's own creates.
        return _answers(self.url, self.ca_file, self.token, "/readyz", "/api/v1/namespaces/default")

    def _controllers_are_ready(self) -> bool:
        own = f"https://127.0.0.1:{self._controllers}"
        certificate = self._pki / "kube-controller-manager.crt"
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        return _answers(own, certificate, self.token, "/healthz") and _answers(
            self.url, self.ca_file, self.token, account
        )


def copy_data(source: Path, target: Path) -> None:
    """Copy what an etcd has written, which stands still; most of its 130 MB are still holes."""
    subprocess.run(["cp", "--recursive", "--sparse=always", source, target], check=True)


def _answers(url: str, ca_file: Path, token: str, *paths: str) -> bool:
    with contextlib.suppress(OSError, HTTPException, ApiError):
        with Api(url, token=token, ca_file=ca_file) as api:
            for path in paths:
                api.get(path)
        return True
    return False
