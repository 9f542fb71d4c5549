"""App: keeps the certificates of a running server current, whatever their source.

The wall clock is read at every look and no sleep is longer than a poll, so a machine that was
suspended, or whose clock was corrected, notices within one poll.
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

MOST_ROUNDS: Final = 8  # in one look; a whole installation takes four
HURRY: Final = 0.5  # seconds between two looks while nothing valid is served
REMIND: Final = 3600.0  # seconds between two warnings of one kind
log = structlog.get_logger(__name__)


class PairSource(StrEnum):
    """Where the serving pair comes from; with files, the caBundle is somebody else's business."""

    SECRET = "secret"  # noqa: S105 - a setting's value, not a password
    FILES = "files"


class CertificateReason(StrEnum):
    """Reasons of the Events about our Secret. Public API: never rename, only add."""

    RENEWED = "CertificateRenewed"
    RENEW_FAILED = "CertificateRenewFailed"
    EXPIRING = "CertificateExpiring"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should hear of; every reason but ``RENEWED`` is a warning."""

    reason: CertificateReason
    note: str


Announce = Callable[[Notice], None]  # must not block
Look = Callable[[], Awaitable[Pair | None]]  # raises KubeError or OSError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFiles:
    """A pair that somebody else keeps in files, such as a Secret mounted by kubelet.

    Both are read at every look: a few kilobytes, and no rule about mtime, inode or kubelet's
    ``..data`` link to get wrong. What is caught in mid-change does not match and is read again.
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
    """The pair in our own Secret, which this replica moves on while it leads."""

    writer: RotationController
    leading: Callable[[], bool]
    announce: Announce

    async def __call__(self) -> Pair | None:
        """Move on as far as possible, then read the pair; raises :class:`KubeError`."""
        try:
            await self._move()
        except KubeError as error:
            log.warning("certificate rotation failed", why=str(error))
        held = await self.writer.secrets.read()
        return decode_secret(held.data, held.annotations).leaf if held else None

    async def _move(self) -> None:
        for _ in range(MOST_ROUNDS):
            if not self.leading():
                return
            done = await self.writer.round()
            self._announce_round(done)
            if not done.may_advance or done.failed:
                return

    def _announce_round(self, done: Round) -> None:
        for target in done.missing:
            log.debug("registration not found, skipped", target=str(target))
        for why in done.failed:
            self.announce(
                Notice(CertificateReason.RENEW_FAILED, f"the CA bundle was not published: {why}")
            )
        if note := step_sentence(done.step):
            self.announce(Notice(CertificateReason.RENEWED, note))


@dataclass(slots=True, kw_only=True)
class RefreshController:
    """Loads what *look* finds, for ever, and says when it should worry somebody."""

    serving: ServingPair
    look: Look
    announce: Announce
    lifetimes: Lifetimes = DEFAULT
    clock: Clock = SYSTEM
    _reported: tuple[PairFinding, ...] = field(default=(), init=False)
    _told: dict[CertificateReason, float] = field(default_factory=dict, init=False)

    async def run(self) -> Never:
        """Keep going until cancelled."""
        while True:
            await self.refresh()
            poll = self.lifetimes.poll.total_seconds()
            await self.clock.sleep(poll if self.serving.ready else min(poll, HURRY))

    async def refresh(self) -> None:
        """Look once; a failure keeps what is served."""
        try:
            pair = await self.look()
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
        if now - self._told.get(reason, -math.inf) >= REMIND:
            self._told[reason] = now
            self.announce(Notice(reason, note))


def throwaway(terms: IssueParameters, *, clock: Clock = SYSTEM) -> tuple[bytes, Pair]:
    """Make a bundle and a pair that nobody keeps, for a demonstration or a test."""
    authority = issue.authority(terms.lifetimes, new_key_material(clock.wall()))
    leaf = issue.leaf(authority, terms, new_key_material(clock.wall()))
    return certificates_pem(authority.certificate), leaf.pair
