"""The secret in the paths of hooks, kept by replicas that start, stop and lose things."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from certs.ca_bundle import Endpoint, WebhookRegistration, WebhookTarget
from certs.rotation_controller import StoredSecret
from kube.errors import ConflictError, UnreadableError
from tests.fakes.certificates import MUTATING, VALIDATING, FakeSecrets, Time
from webhook.caller.hook_paths import HELD_SECONDS, READS_PATHS, SETTLE_SECONDS, HookPaths
from webhook.caller.path_controller import POLL_SECONDS, PathController, new_token

SERVICE = ("vgpu-admission-system", "vgpu-webhook")
HOOKS = {
    MUTATING: ("pods.vgpu-admission.io", "bindings.vgpu-admission.io"),
    VALIDATING: ("pods.validate.vgpu-admission.io",),
}


@dataclass(slots=True)
class Registered:
    """Registrations in memory, each with the endpoints of its webhooks."""

    objects: dict[WebhookTarget, WebhookRegistration] = field(default_factory=dict)
    refuses: bool = False

    def install(self, path: str = "", *, service: tuple[str, str] | None = SERVICE) -> None:
        for target, names in HOOKS.items():
            endpoints = {name: Endpoint(path=path, service=service) for name in names}
            self._put(
                WebhookRegistration(target=target, version="1", bundles=(), endpoints=endpoints)
            )

    def _put(self, registration: WebhookRegistration) -> None:
        self.objects[registration.target] = registration

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        return self.objects.get(target)

    async def publish_paths(
        self, registration: WebhookRegistration, paths: Mapping[str, Endpoint]
    ) -> None:
        if self.refuses or self.objects[registration.target].version != registration.version:
            raise ConflictError(409, "Conflict", "the object has been modified")
        # As server-side apply has it: what this manager wrote before and names no more is gone.
        kept = {
            name: replace(endpoint, path="")
            for name, endpoint in registration.endpoints.items()
            if endpoint.service == SERVICE
        }
        endpoints = {**registration.endpoints, **kept, **paths}
        version = str(int(registration.version) + 1)
        self._put(replace(registration, version=version, endpoints=endpoints))

    @property
    def paths(self) -> list[str]:
        """Return the path of each webhook, in order."""
        return [
            endpoint.path
            for registration in self.objects.values()
            for endpoint in registration.endpoints.values()
        ]


@dataclass(slots=True)
class Cluster:
    """What replicas share, and the time."""

    time: Time = field(default_factory=Time)
    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    registered: Registered = field(default_factory=Registered)
    made: int = 0
    older: int = 0  # replicas of a release that knows no secrets
    listed: int = 0

    async def all_carry(self, annotation: str) -> bool:
        self.listed += 1
        assert annotation == READS_PATHS
        return self.older == 0

    def token(self) -> str:
        self.made += 1
        return f"{self.made:043d}"

    def replica(self, *, leads: bool = False) -> PathController:
        return PathController(
            secrets=self.secrets,
            registrations=self.registered,
            replicas=self,
            targets=(MUTATING, VALIDATING),
            paths=HookPaths(()),
            leading=lambda: leads,
            clock=self.time.clock,
            make_token=self.token,
        )

    def sweep(self, *replicas: PathController) -> None:
        """Let each replica do all that it may now."""

        async def all_of_it() -> None:
            for each in replicas:
                while await each.sweep():
                    pass

        asyncio.run(all_of_it())

    def pass_by(self, seconds: float, *replicas: PathController) -> None:
        """Let time pass, in which replicas sweep as they do, and each answers all calls."""
        end = self.time.seconds + seconds
        while self.time.seconds < end:
            self.time.seconds += POLL_SECONDS
            self.sweep(*replicas)
            assert all(answered(each, self.registered.paths) for each in replicas)


def answered(replica: PathController, paths: list[str]) -> bool:
    return all(replica.paths.hook_of(path) for path in paths)


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster in which the manifests were applied."""
    made = Cluster()
    made.registered.install()
    return made


def test_the_first_secret_is_published_at_once(cluster: Cluster) -> None:
    """Until then no hook is called at all, so that pods that ask for vGPU are refused."""
    leader, other = cluster.replica(leads=True), cluster.replica()

    cluster.sweep(leader, other)

    token = f"{1:043d}"
    assert cluster.registered.paths == [
        f"/mutate/pods/{token}",
        f"/mutate/bindings/{token}",
        f"/validate/pods/{token}",
    ]
    assert answered(leader, cluster.registered.paths)
    assert answered(other, cluster.registered.paths)
    assert leader.paths.secret


def test_a_webhook_of_the_site_is_left_alone(cluster: Cluster) -> None:
    """Somebody added one to our registration, which calls somebody else."""
    registration = cluster.registered.objects[VALIDATING]
    own = {"site.example.com": Endpoint(path="/own", service=("site", "svc"))}
    cluster.registered.objects[VALIDATING] = replace(
        registration, endpoints={**registration.endpoints, **own}
    )

    cluster.sweep(cluster.replica(leads=True))

    assert cluster.registered.objects[VALIDATING].endpoints["site.example.com"].path == "/own"


def test_who_does_not_lead_writes_nothing(cluster: Cluster) -> None:
    """All replicas read, and one writes."""
    cluster.sweep(cluster.replica())

    assert (cluster.secrets.writes, cluster.registered.paths) == (0, [""] * 3)


def test_every_hour_there_is_another(cluster: Cluster) -> None:
    """Each call of the API server is answered by each replica all the time."""
    leader, other = cluster.replica(leads=True), cluster.replica()
    cluster.sweep(leader, other)
    first = cluster.registered.paths

    cluster.pass_by(3600, leader, other)
    before = cluster.registered.paths
    cluster.pass_by(SETTLE_SECONDS, leader, other)
    after = cluster.registered.paths

    assert (before, cluster.made) == (first, 2)
    assert after[0] == f"/mutate/pods/{2:043d}"
    assert answered(other, first)
    cluster.pass_by(HELD_SECONDS, leader, other)
    assert not any(map(other.paths.hook_of, first))
    cluster.pass_by(2 * 3600, leader, other)
    assert cluster.made == 4


def test_a_lost_secret_costs_no_call(cluster: Cluster) -> None:
    """Also with replicas that never read it: what the registrations carry is answered."""
    cluster.sweep(cluster.replica(leads=True))
    first = cluster.registered.paths
    cluster.secrets.held = None
    leader, other = cluster.replica(leads=True), cluster.replica()

    cluster.sweep(leader, other)
    kept = cluster.registered.paths
    cluster.pass_by(SETTLE_SECONDS, leader, other)

    assert (kept, cluster.made) == (first, 2)
    assert cluster.registered.paths[0] == f"/mutate/pods/{2:043d}"


def test_nobody_leads_for_hours(cluster: Cluster) -> None:
    """The secret grows old, and nobody is refused."""
    first = cluster.replica(leads=True)
    cluster.sweep(first)
    other = cluster.replica()
    cluster.sweep(other)

    cluster.pass_by(5 * 3600, other)

    assert cluster.made == 1


def test_a_leader_whose_clock_is_wrong(cluster: Cluster) -> None:
    """It makes a secret too early or too late, and no call is lost."""
    leader, other = cluster.replica(leads=True), cluster.replica()
    cluster.sweep(leader, other)

    for hours in (3, -7):
        cluster.time.jumped = timedelta(hours=hours)
        cluster.pass_by(2 * SETTLE_SECONDS, leader, other)

    assert cluster.made == 3


def test_a_path_that_was_applied_again_is_replaced(cluster: Cluster) -> None:
    """An older version of the manifests says the path without a secret; calls are answered."""
    leader = cluster.replica(leads=True)
    cluster.sweep(leader)
    cluster.registered.install("/mutate/pods")

    cluster.sweep(leader)
    applied = cluster.registered.paths, leader.paths.secret
    cluster.pass_by(SETTLE_SECONDS, leader)

    assert applied == (["/mutate/pods"] * 3, False)
    assert cluster.registered.paths[1] == f"/mutate/bindings/{1:043d}"
    cluster.pass_by(HELD_SECONDS, leader)
    assert leader.paths.secret
    assert leader.paths.hook_of("/mutate/pods") is None


def test_a_path_that_was_taken_away_comes_back_at_once(cluster: Cluster) -> None:
    """Without a path the API server calls no hook."""
    leader = cluster.replica(leads=True)
    cluster.sweep(leader)
    cluster.registered.install()

    cluster.sweep(leader)

    assert cluster.registered.paths[0] == f"/mutate/pods/{1:043d}"


def test_an_upgrade_keeps_the_paths_that_older_replicas_know(cluster: Cluster) -> None:
    """The new manifests take the paths away while only replicas of the release before lead."""
    cluster.older = 2
    newer = cluster.replica()

    cluster.sweep(newer)
    at_first = cluster.registered.paths
    leader = cluster.replica(leads=True)
    cluster.pass_by(10 * SETTLE_SECONDS, newer, leader)
    meanwhile = cluster.registered.paths
    cluster.older = 0
    cluster.pass_by(SETTLE_SECONDS, newer, leader)

    assert at_first == meanwhile == ["/mutate/pods", "/mutate/bindings", "/validate/pods"]
    assert cluster.registered.paths[0] == f"/mutate/pods/{1:043d}"


def test_the_way_back_leaves_the_paths_of_older_manifests(cluster: Cluster) -> None:
    """They are applied some seconds before the first replica of that release is listed."""
    leader = cluster.replica(leads=True)
    cluster.sweep(leader)
    cluster.pass_by(10 * SETTLE_SECONDS, leader)
    cluster.registered.install("/mutate/pods")

    cluster.sweep(leader)
    cluster.pass_by(SETTLE_SECONDS - POLL_SECONDS, leader)
    cluster.older = 1
    cluster.pass_by(10 * SETTLE_SECONDS, leader)

    assert cluster.registered.paths == ["/mutate/pods"] * 3


def test_replicas_are_listed_only_to_publish(cluster: Cluster) -> None:
    """A read of all of them is nothing to do every few seconds."""
    leader, other = cluster.replica(leads=True), cluster.replica()
    cluster.sweep(leader, other)
    before = cluster.listed

    cluster.pass_by(3000, leader, other)

    assert cluster.listed == before


def test_a_url_is_its_site_s_own(cluster: Cluster) -> None:
    """It is answered as it is written, with a secret or without, and left alone."""
    cluster.registered.install("/mutate/pods/" + "mine" * 10, service=None)
    leader = cluster.replica(leads=True)

    cluster.sweep(leader)
    cluster.pass_by(SETTLE_SECONDS, leader)

    assert cluster.registered.paths == ["/mutate/pods/" + "mine" * 10] * 3
    assert leader.paths.hook_of("/mutate/pods/" + "mine" * 10) == "/mutate/pods"
    assert leader.paths.hook_of("/mutate/pods") is None


def test_without_registrations_only_our_own_secret_holds() -> None:
    """Somebody who takes the hooks away does not open the port to everybody."""
    cluster = Cluster()
    leader = cluster.replica(leads=True)

    cluster.sweep(leader)

    assert leader.paths.hook_of("/mutate/pods") is None
    assert leader.paths.hook_of(f"/mutate/pods/{1:043d}") == "/mutate/pods"


def test_two_leaders_do_no_harm(cluster: Cluster) -> None:
    """One of them was paused between reading and writing."""
    one, two = cluster.replica(leads=True), cluster.replica(leads=True)

    cluster.sweep(one, two)
    cluster.pass_by(3600 + 2 * SETTLE_SECONDS, two, one)

    assert cluster.made == 2


def test_a_failure_is_tried_again(cluster: Cluster) -> None:
    """The loop goes on, faster while it knows no path."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        cluster.registered.refuses = False
        if len(waited) == 3:
            raise asyncio.CancelledError

    leader = cluster.replica(leads=True)
    leader.clock = replace(cluster.time.clock, sleep=sleep)
    cluster.registered.refuses = True
    leader.secrets = UnreadableOnce()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(leader.run())

    assert waited == [1.0, POLL_SECONDS, POLL_SECONDS]
    assert cluster.registered.paths[0] == f"/mutate/pods/{1:043d}"


class UnreadableOnce(FakeSecrets):
    """Fails at first."""

    failed: bool = False

    async def read(self) -> StoredSecret | None:
        if not self.failed:
            self.failed = True
            raise UnreadableError("not a Secret")
        return await super().read()


def test_a_secret_is_drawn_anew() -> None:
    """256 bits, in characters that the API server admits."""
    drawn = {new_token() for _ in range(64)}

    assert len(drawn) == 64
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in drawn)
