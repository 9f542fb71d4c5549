"""A Secret, registrations and a clock in memory, which a test may stop between any two effects."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from certs.ca_bundle import WebhookKind, WebhookRegistration, WebhookTarget
from certs.issue import IssueParameters, service_names
from certs.rotation_controller import Replicas, RotationController, SecretChange, StoredSecret
from certs.rotation_policy import Lifetimes
from kube.clock import Clock
from kube.errors import ApiError, ConflictError

V = TypeVar("V")
START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MUTATING = WebhookTarget(WebhookKind.MUTATING, "vgpu-admission")
VALIDATING = WebhookTarget(WebhookKind.VALIDATING, "vgpu-admission")
LIFETIMES = Lifetimes(
    ca=timedelta(seconds=3000),
    leaf=timedelta(seconds=300),
    skew=timedelta(seconds=10),
    settle=timedelta(seconds=15),
    notice=timedelta(seconds=400),
    poll=timedelta(seconds=5),
)
POLICY = IssueParameters(names=service_names("vgpu-webhook", "vgpu-system"), lifetimes=LIFETIMES)


@dataclass(frozen=True, slots=True)
class Breath:
    """Every call takes one before it acts and one after."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass(slots=True)
class Time:
    """Monotonic seconds, and how far the wall clock has left them."""

    seconds: float = 0.0
    jumped: timedelta = timedelta()

    @property
    def wall(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.jumped

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.seconds, wall=lambda: self.wall)


@dataclass(slots=True)
class FakeSecrets:
    held: StoredSecret | None = None
    writes: int = 0

    async def read(self) -> StoredSecret | None:
        await Breath()
        found = self.held
        await Breath()
        return found

    async def write(self, version: str | None, change: SecretChange) -> None:
        await Breath()
        if version != (self.held.version if self.held else None):
            raise ConflictError(409, "Conflict", "the object has been modified")
        before = self.held or StoredSecret(version="", data={}, annotations={})
        self.writes += 1
        self.held = StoredSecret(
            version=f"s{self.writes}",
            data=merged(before.data, change.data),
            annotations=merged(before.annotations, change.annotations),
        )
        await Breath()


@dataclass(slots=True)
class FakeRegistrations:
    """Keeps when each bundle came, since an API server may act on the one before for a while."""

    time: Time
    objects: dict[WebhookTarget, WebhookRegistration] = field(default_factory=dict)
    history: dict[WebhookTarget, list[tuple[float, bytes]]] = field(default_factory=dict)
    writes: int = 0

    def install(self, target: WebhookTarget) -> None:
        self._put(WebhookRegistration(target=target, version="", bundles=(("a.b.c", b""),)))

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        await Breath()
        found = self.objects.get(target)
        await Breath()
        return found

    async def publish(self, registration: WebhookRegistration, bundle: bytes) -> None:
        await Breath()
        present = self.objects.get(registration.target)
        if present is None or present.version != registration.version:
            raise ConflictError(409, "Conflict", "the object has been modified")
        self._put(replace(present, bundles=tuple((name, bundle) for name, _ in present.bundles)))
        await Breath()

    def _put(self, registration: WebhookRegistration) -> None:
        self.writes += 1
        self.objects[registration.target] = replace(registration, version=f"r{self.writes}")
        past = self.history.setdefault(registration.target, [])
        past.append((self.time.seconds, registration.bundles[0][1]))


@dataclass(slots=True)
class World:
    """A cluster with both registrations installed and no Secret yet."""

    time: Time = field(default_factory=Time)
    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    registrations: FakeRegistrations = field(init=False)

    def __post_init__(self) -> None:
        self.registrations = FakeRegistrations(self.time)
        self.registrations.install(MUTATING)
        self.registrations.install(VALIDATING)

    def writer(self, replicas: Replicas | None = None) -> RotationController:
        return RotationController(
            replicas=replicas,
            secrets=self.secrets,
            registrations=self.registrations,
            targets=(MUTATING, VALIDATING),
            parameters=POLICY,
            clock=self.time.clock,
        )


@dataclass(slots=True)
class KnownReplicas:
    """Replicas of which it is known whether one serves; an error where they cannot be listed."""

    nobody: bool | ApiError
    asked: int = 0

    async def nobody_serves(self) -> bool:
        self.asked += 1
        if isinstance(self.nobody, ApiError):
            raise self.nobody
        return self.nobody


def merged(before: Mapping[str, V], changes: Mapping[str, V | None]) -> dict[str, V]:
    after = {**before, **changes}
    return {key: value for key, value in after.items() if value is not None}
