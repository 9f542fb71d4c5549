"""Keeps a client certificate of our authority in a Secret, for callers that we must know.

It is signed by the newest authority, also by one that signs no leaf yet, and lives as long as that.
So it changes when the bundle gets a new authority, which its holder has to learn of anyhow, and at
no other time. The certificate of the authority before is accepted until the new one signs leaves.

Each replica that wants it keeps it. The Secret is written at the version that was read, so of two
that begin at once one gives way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Never

import structlog

from certs import issue
from certs.check import Expected, check_pair
from certs.issue import Credential, KeyMaterial
from certs.pem import Pair, certificates_pem
from certs.rotation_controller import SecretChange, Secrets, new_key_material
from certs.rotation_policy import DEFAULT, Lifetimes
from certs.secret_codec import BUNDLE, LEAF, LEAF_KEY, decode_secret
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, KubeError

COMMON_NAME: Final = "vgpu-extender-client"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientController:
    """Writes ``ca.crt``, ``tls.crt`` and ``tls.key`` into ``target``."""

    source: Secrets  # our Secret, with the authorities
    target: Secrets
    lifetimes: Lifetimes = DEFAULT
    clock: Clock = SYSTEM
    new_material: Callable[[datetime], KeyMaterial] = new_key_material

    async def run(self) -> Never:
        """Sweep until cancelled."""
        while True:
            try:
                await self.sweep()
            except ConflictError:
                log.debug("client certificate written by another replica")
            except KubeError as error:
                log.warning("client certificate not kept", why=str(error))
            await self.clock.sleep(self.lifetimes.poll.total_seconds())

    async def sweep(self) -> None:
        """Write what is missing; raises :class:`kube.errors.KubeError`."""
        stored = await self.source.read()
        secret = decode_secret(stored.data, stored.annotations) if stored else None
        issuer = (secret.next or secret.signing) if secret else None
        if secret is None or issuer is None:
            return
        held = await self.target.read()
        data = held.data if held else {}
        pair = self._usable_pair(data, issuer) or self._new_pair(issuer)
        wanted = {
            BUNDLE: certificates_pem(*secret.bundle),
            LEAF: pair.certificate,
            LEAF_KEY: pair.key,
        }
        if any(data.get(key) != text for key, text in wanted.items()):
            change = SecretChange(data=wanted, annotations={})
            await self.target.write(held.version if held else None, change)
            log.info("client certificate or its authorities written")

    def _usable_pair(self, data: Mapping[str, bytes], issuer: Credential) -> Pair | None:
        pair = Pair(certificate=data.get(LEAF, b""), key=data.get(LEAF_KEY, b""))
        expected = Expected(now=self.clock.wall(), trusted=(issuer.certificate,))
        return None if check_pair(pair, expected) else pair

    def _new_pair(self, issuer: Credential) -> Pair:
        material = self.new_material(self.clock.wall())
        return issue.client(issuer, COMMON_NAME, material, lifetimes=self.lifetimes).pair
