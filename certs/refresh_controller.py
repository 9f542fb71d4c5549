"""Keeps the certificate of a running server current, from our Secret or from files.

The wall clock is read in every round and no sleep is longer than the poll interval, so a suspended
machine or a corrected clock is noticed within one poll.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Never

import structlog

from certs import issue
from certs.check import PairFinding
from certs.issue import IssueParameters
from certs.pem import Pair, certificates_pem
from certs.rotation_controller import RotationController, Round, new_key_material
from certs.rotation_policy import DEFAULT, Lifetimes, is_expiring
from certs.secret_codec import decode_secret
from certs.status import step_sentence
from certs.tls_server import ServingPair
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError

MOST_ROUNDS: Final = 8  # of rotation at a time; a whole installation takes four
POLL_WHILE_INVALID: Final = 0.5  # seconds between two reads while nothing valid is served
REMINDER_SECONDS: Final = 3600.0  # seconds between two notices of one reason
log = structlog.get_logger(__name__)


class PairSource(StrEnum):
    """The source of the serving pair; with files, somebody else maintains the caBundle."""

    SECRET = "secret"  # noqa: S105 - a setting's value, not a password
    FILES = "files"


class CertificateReason(StrEnum):
    """Reasons of the Events about our Secret. Public API: never rename, only add."""

    RENEWED = "CertificateRenewed"
    RENEW_FAILED = "CertificateRenewFailed"
    EXPIRING = "CertificateExpiring"


@dataclass(frozen=True, slots=True)
class Notice:
    """News for an operator; every reason but ``RENEWED`` is a warning."""

    reason: CertificateReason
    note: str


Announce = Callable[[Notice], None]  # must not block
ReadPair = Callable[[], Awaitable[Pair | None]]  # raises KubeError or OSError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFiles:
    """A pair that somebody else maintains in files, such as a Secret mounted by kubelet.

    Both files are read every time. They have a few kilobytes, and no rule about mtime, inode or
    kubelet's ``..data`` link is needed. A pair read in the middle of a change does not match, so it
    is rejected and read again.
    """

    certificate: Path
    key: Path

    async def __call__(self) -> Pair | None:
        """Read the pair; raises ``OSError``."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Pair:
        return Pair(certificate=self.certificate.read_bytes(), key=self.key.read_bytes())


@dataclass(slots=True, kw_only=True)
class OwnSecret:
    """The pair in our own Secret, whose rotation this replica advances while it leads."""

    rotation: RotationController
    leading: Callable[[], bool]
    announce: Announce
    # The authorities that sign or will, PEM, when the pair was read last. Who holds a client
    # certificate of an older one does not know the authority of our leaf either.
    signing: bytes = field(default=b"", init=False)

    async def __call__(self) -> Pair | None:
        """Advance the rotation while possible, then read the pair; raises :class:`KubeError`.

        Without a pair and with no replica that serves, this one need not lead. The Lease of a
        leader that was killed lasts for another 15 seconds, in which nobody else would begin.
        """
        await self._try_to_advance(self.leading)
        pair = await self._stored_pair()
        if pair is None and not self.leading() and await self.rotation.nobody_serves():
            await self._try_to_advance(lambda: True)
            pair = await self._stored_pair()
        return pair

    async def _stored_pair(self) -> Pair | None:
        stored = await self.rotation.secrets.read()
        if stored is None:
            return None
        secret = decode_secret(stored.data, stored.annotations)
        signing = (each.certificate for each in (secret.signing, secret.next) if each is not None)
        self.signing = certificates_pem(*signing)
        return secret.leaf

    async def _try_to_advance(self, may_write: Callable[[], bool]) -> None:
        try:
            await self._advance(may_write)
        except KubeError as error:
            log.warning("certificate rotation failed", why=str(error))

    async def _advance(self, may_write: Callable[[], bool]) -> None:
        for _ in range(MOST_ROUNDS):
            if not may_write():
                return
            finished = await self.rotation.round()
            self._announce_round(finished)
            if not finished.may_advance or finished.failed:
                return

    def _announce_round(self, finished: Round) -> None:
        for target in finished.missing:
            log.debug("registration not found, skipped", target=str(target))
        for why in finished.failed:
            self.announce(
                Notice(CertificateReason.RENEW_FAILED, f"the CA bundle was not published: {why}")
            )
        if note := step_sentence(finished.step):
            self.announce(Notice(CertificateReason.RENEWED, note))


@dataclass(slots=True, kw_only=True)
class RefreshController:
    """Loads the pair that *read_pair* returns, again and again, and announces faults and expiry."""

    serving: ServingPair
    read_pair: ReadPair
    announce: Announce
    # Takes the serving pair whenever it is another one; must not block.
    note_loaded: Callable[[ServingPair], None] = lambda _: None
    lifetimes: Lifetimes = DEFAULT
    clock: Clock = SYSTEM
    _reported: tuple[PairFinding, ...] = field(default=(), init=False)
    _last_notices: dict[CertificateReason, float] = field(default_factory=dict, init=False)

    async def run(self) -> Never:
        """Refresh until cancelled."""
        while True:
            await self.refresh()
            poll = self.lifetimes.poll.total_seconds()
            await self.clock.sleep(poll if self.serving.ready else min(poll, POLL_WHILE_INVALID))

    async def refresh(self) -> None:
        """Read and load the pair once; after a failure the previous pair stays."""
        try:
            pair = await self.read_pair()
        except (KubeError, OSError) as error:
            log.warning("serving certificate not read", why=str(error))
        else:
            self._load(pair)
        self._warn_if_expiring()

    def _load(self, pair: Pair | None) -> None:
        before = self.serving.fingerprint
        pair_findings = self.serving.load(pair) if pair is not None else ()
        if self.serving.fingerprint != before:
            log.info("new serving certificate loaded", until=self.serving.not_after)
            self.note_loaded(self.serving)
        if pair_findings != self._reported:
            self._reported = pair_findings
            for finding in pair_findings:
                log.warning("invalid serving certificate rejected", finding=str(finding))
        if pair_findings:
            self._remind(CertificateReason.RENEW_FAILED, "; ".join(map(str, pair_findings)))

    def _warn_if_expiring(self) -> None:
        until = self.serving.not_after
        if until is not None and is_expiring(until, self.clock.wall(), self.lifetimes):
            note = f"the serving certificate ends at {until.isoformat()} and was not renewed"
            self._remind(CertificateReason.EXPIRING, note)

    def _remind(self, reason: CertificateReason, note: str) -> None:
        now = self.clock.monotonic()
        if now - self._last_notices.get(reason, -math.inf) >= REMINDER_SECONDS:
            self._last_notices[reason] = now
            self.announce(Notice(reason, note))


def throwaway(parameters: IssueParameters, *, clock: Clock = SYSTEM) -> tuple[bytes, Pair]:
    """Return a new CA bundle and a pair that are not stored, for a demonstration or a test."""
    authority = issue.authority(parameters.lifetimes, new_key_material(clock.wall()))
    leaf = issue.leaf(authority, parameters, new_key_material(clock.wall()))
    return certificates_pem(authority.certificate), leaf.pair
