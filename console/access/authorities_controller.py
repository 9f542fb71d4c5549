"""Publishes the authority of the console's certificate, by which ``kubectl vgpu`` knows it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Never

import structlog

from certs.pem import certificates
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError

CONFIG_MAP: Final = "vgpu-console-ca"
KEY: Final = "ca.crt"
POLL_SECONDS: Final = 10.0
FIRST_SECONDS: Final = 1.0  # while nothing is published yet, for which people wait
RENEW_SECONDS: Final = 600.0  # after which it is written again, in case somebody changed it
log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class AuthoritiesController:
    """Writes what ``authorities`` returns, PEM, into a ConfigMap that exists already."""

    client: ApiClient
    namespace: str
    authorities: Callable[[], str]
    clock: Clock = SYSTEM
    _published: str = field(default="", init=False)
    _published_at: float = field(default=0.0, init=False)
    _why: str = field(default="", init=False)  # it was not published the last time

    async def run(self) -> Never:
        """Publish for ever; RBAC: patch on the ConfigMap."""
        while True:
            await self.publish()
            await self.clock.sleep(POLL_SECONDS if self._published else FIRST_SECONDS)

    async def publish(self) -> None:
        """Publish once, where that is due; a failure is tried again, and logged once."""
        text, now = self.authorities(), self.clock.monotonic()
        due = text != self._published or now - self._published_at >= RENEW_SECONDS
        if not due or not certificates(text.encode()):
            return
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{CONFIG_MAP}"
        try:
            await self.client.merge_patch(path, {"data": {KEY: text}})
        except KubeError as error:
            if (why := str(error)) != self._why:  # it is tried again within seconds
                log.warning("authority not published", configmap=CONFIG_MAP, why=why)
            self._why = why
            return
        self._published, self._published_at, self._why = text, now, ""
