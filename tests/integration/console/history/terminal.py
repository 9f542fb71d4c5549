"""The plugin on a real TLS console and an API server, as a person runs it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

from click.testing import CliRunner, Result

from console.cli.kubectl_vgpu import NAME, cli
from console.history.console_client import AUTHORITIES, KEY
from tests.builders.history import DECISIONS, RECORDS, USAGE
from tests.fakes.api_server import ApiServer
from tests.fakes.console_server import NAME as CONSOLE_NAME
from tests.fakes.console_server import ConsoleServer
from tests.fakes.pki import Authority
from tests.fakes.port_forward import install
from tests.integration.console.sessions import SETTINGS, put

TOKEN: Mapping[str, object] = {"token": "secret"}


@dataclass(slots=True)
class Terminal:
    """A person's machine: kubectl, a kubeconfig, and what stands behind them."""

    folder: Path
    api: ApiServer
    console: ConsoleServer
    authority: Authority  # of the API server
    forward: bool = True
    variables: dict[str, str] = field(default_factory=dict)

    async def run(
        self,
        *arguments: str,
        user: Mapping[str, object] = TOKEN,
        cluster: Mapping[str, object] | None = None,
    ) -> Result:
        """Run the plugin and return its output and exit code."""
        config = self.folder / "config"
        config.write_text(json.dumps(self._config(user, cluster)))
        to = self.console.port if self.forward else None
        variables = {**install(self.folder, to), "KUBECONFIG": str(config), **self.variables}
        return await asyncio.to_thread(
            CliRunner().invoke, cli, list(arguments), env=variables, prog_name=NAME
        )

    def _config(
        self, user: Mapping[str, object], cluster: Mapping[str, object] | None
    ) -> dict[str, Any]:
        trusted = base64.b64encode(self.authority.certificate).decode()
        own = {"server": self.api.url, "certificate-authority-data": trusted}
        context = {"cluster": "c", "user": "u", "namespace": "team-nlp"}
        return {
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": own if cluster is None else cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "here", "context": context}],
        }

    def calls(self) -> Sequence[str]:
        """Return the arguments of each port-forward."""
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@asynccontextmanager
async def terminal(
    folder: Path,
    *,
    published: bool = True,
    name: str = CONSOLE_NAME,
    issuer: Authority | None = None,
) -> AsyncIterator[Terminal]:
    """Lend a terminal whose cluster has published the authority of its console."""
    authority = Authority("kubernetes")
    console = ConsoleServer(decisions=DECISIONS, records=RECORDS, usage=USAGE)
    async with ApiServer(tls=authority.server()) as api, console.serve(name=name, issuer=issuer):
        if published:
            bundle = console.ours.certificate.decode()
            put(api, SETTINGS, {"metadata": {"name": AUTHORITIES}, "data": {KEY: bundle}})
        yield Terminal(folder, api, console, authority)


class _How(TypedDict, total=False):
    published: bool
    name: str
    issuer: Authority | None


def play(
    folder: Path, scenario: Callable[[Terminal], Awaitable[None]], **how: Unpack[_How]
) -> None:
    """Run *scenario* with a terminal."""

    async def run() -> None:
        async with terminal(folder, **how) as machine:
            await scenario(machine)

    asyncio.run(run())
