"""Keeps a certificate of our authority in a Secret, for a program other than the webhook.

A :class:`ClientLeaf` is for a caller that somebody must know. It is signed by the newest authority,
also by one that signs no other leaf yet, and lives as long as that. So it changes when the bundle
gets a new authority, which its holder has to learn of anyhow, and at no other time. The certificate
of the authority before is accepted until the new one signs leaves.

A :class:`ServerLeaf` is for a server. It is signed by the authority that signs the webhook's own
leaf, because its callers may not know a newer one yet, and is renewed like that.

Each replica that wants a certificate keeps it. The Secret is written at the version that was read,
so of two that begin at once one gives way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Never

import structlog

from certs import issue
from certs.check import Expected, check_pair
from certs.issue import Credential, IssueParameters, KeyMaterial, Names
from certs.pem import Pair, certificates, certificates_pem
from certs.refresh_controller import Announce, CertificateReason, Notice
from certs.rotation_controller import SecretChange, Secrets, new_key_material
from certs.rotation_policy import DEFAULT, RENEW_LEFT, Lifetimes
from certs.secret_codec import BUNDLE, LEAF, LEAF_KEY, SecretState, decode_secret
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, KubeError

KEPT_POLL: Final = 30.0  # seconds between two looks at a Secret that was as it should be
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClientLeaf:
    """A certificate by which a caller of this name is known."""

    name: str

    def __str__(self) -> str:
        return self.name

    def issuer(self, secret: SecretState) -> Credential | None:
        """Return the newest authority."""
        return secret.next or secret.signing

    def is_usable(
        self,
        pair: Pair,
        issuer: Credential,
        *,
        now: datetime,
        lifetimes: Lifetimes,  # noqa: ARG002 -- it lives as long as its issuer
    ) -> bool:
        """Say whether *pair* may stay."""
        return not check_pair(pair, Expected(now=now, trusted=(issuer.certificate,)))

    def issue(self, issuer: Credential, material: KeyMaterial, lifetimes: Lifetimes) -> Pair:
        """Return a new pair."""
        return issue.client(issuer, self.name, material, lifetimes=lifetimes).pair


@dataclass(frozen=True, slots=True)
class ServerLeaf:
    """A certificate of a server that is called by these names."""

    names: Names

    def __str__(self) -> str:
        return ", ".join((*self.names.dns[:1], *map(str, self.names.addresses[:1])))

    def issuer(self, secret: SecretState) -> Credential | None:
        """Return the authority that signs leaves."""
        return secret.signing

    def is_usable(
        self, pair: Pair, issuer: Credential, *, now: datetime, lifetimes: Lifetimes
    ) -> bool:
        """Say whether *pair* may stay: a third of its life is left, or a new one ends no later."""
        expected = Expected(now=now, trusted=(issuer.certificate,), names=self.names)
        if check_pair(pair, expected):
            return False
        end = certificates(pair.certificate)[0].not_valid_after_utc
        new_end = min(now + lifetimes.leaf, issuer.certificate.not_valid_after_utc)
        return now < end - lifetimes.leaf / RENEW_LEFT or new_end <= end

    def issue(self, issuer: Credential, material: KeyMaterial, lifetimes: Lifetimes) -> Pair:
        """Return a new pair."""
        parameters = IssueParameters(names=self.names, lifetimes=lifetimes)
        return issue.leaf(issuer, parameters, material).pair


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafController:
    """Writes ``ca.crt``, ``tls.crt`` and ``tls.key`` into ``target``."""

    source: Secrets  # our Secret, with the authorities
    target: Secrets
    leaf: ClientLeaf | ServerLeaf
    announce: Announce = lambda _: None
    kept_poll: float = KEPT_POLL
    lifetimes: Lifetimes = DEFAULT
    clock: Clock = SYSTEM
    new_material: Callable[[datetime], KeyMaterial] = new_key_material

    async def run(self) -> Never:
        """Sweep until cancelled."""
        poll = self.lifetimes.poll.total_seconds()
        trouble = ""
        while True:
            pause = poll
            try:
                if await self.sweep():
                    pause = max(poll, self.kept_poll)
                trouble = ""
            except ConflictError:
                log.debug("certificate written by another replica")
            except KubeError as error:
                if str(error) != trouble:
                    log.warning("certificate not kept", leaf=str(self.leaf), why=str(error))
                    note = f"the certificate of {self.leaf} was not kept: {error}"
                    self.announce(Notice(CertificateReason.RENEW_FAILED, note))
                trouble = str(error)
            await self.clock.sleep(pause)

    async def sweep(self) -> bool:
        """Write what is missing, say whether nothing was; raises :class:`KubeError`."""
        stored = await self.source.read()
        secret = decode_secret(stored.data, stored.annotations) if stored else None
        issuer = self.leaf.issuer(secret) if secret else None
        if secret is None or issuer is None:
            return False
        held = await self.target.read()
        data = held.data if held else {}
        usable = self._usable_pair(data, issuer)
        pair = usable or self._new_pair(issuer)
        wanted = {
            BUNDLE: certificates_pem(*secret.bundle),
            LEAF: pair.certificate,
            LEAF_KEY: pair.key,
        }
        if all(data.get(key) == text for key, text in wanted.items()):
            return True
        change = SecretChange(data=wanted, annotations={})
        await self.target.write(held.version if held else None, change)
        log.info("certificate or its authorities written", leaf=str(self.leaf))
        if usable is None:
            until = certificates(pair.certificate)[0].not_valid_after_utc.isoformat()
            note = f"a certificate of {self.leaf} was issued, valid until {until}"
            self.announce(Notice(CertificateReason.RENEWED, note))
        return False

    def _usable_pair(self, data: Mapping[str, bytes], issuer: Credential) -> Pair | None:
        pair = Pair(certificate=data.get(LEAF, b""), key=data.get(LEAF_KEY, b""))
        now, lifetimes = self.clock.wall(), self.lifetimes
        return pair if self.leaf.is_usable(pair, issuer, now=now, lifetimes=lifetimes) else None

    def _new_pair(self, issuer: Credential) -> Pair:
        material = self.new_material(self.clock.wall())
        return self.leaf.issue(issuer, material, self.lifetimes)
