"""The registration says what the setting says, whoever applies manifests in between."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jsonpatch

from allocator.core.settings import BindFailure
from kube.clock import Clock
from kube.errors import InvalidError, UnreachableError
from manifests.generator.registrations import registrations
from tests.gpunodes import Json
from webhook.shell.following import EVERY, HOOK, Following


@dataclass(slots=True)
class Api:
    """One registration, and what the setting is."""

    stored: Json = field(default_factory=lambda: registrations()[0])
    wanted: BindFailure | None = BindFailure.IGNORE
    now: float = 0.0
    reads: int = 0
    down: bool = False

    async def get(self, _path: str) -> bytes:
        self.reads += 1
        if self.down:
            raise UnreachableError("down", sent=False)
        return json.dumps(self.stored).encode()

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]]) -> bytes:
        try:
            self.stored = jsonpatch.apply_patch(self.stored, list(ops))
        except jsonpatch.JsonPatchException as error:
            raise InvalidError(422, "Invalid", path) from error
        return b"{}"

    @property
    def policies(self) -> dict[str, str]:
        return {hook["name"]: hook["failurePolicy"] for hook in self.stored["webhooks"]}


def followed(api: Api, *, times: int = 1, apart: float = 1.0) -> Api:
    following = Following(api, lambda: api.wanted, clock=Clock(monotonic=lambda: api.now))
    for _ in range(times):
        asyncio.run(following.sweep())
        api.now += apart
    return api


def test_the_setting_is_followed_for_binds_alone() -> None:
    """Pods that ask still wait for us at CREATE."""
    before = Api().policies

    after = followed(Api()).policies

    assert after == {**before, HOOK: "Ignore"}


def test_nothing_is_done_before_settings_are_known() -> None:
    """A replica that has just started would take the default for a decision."""
    assert followed(Api(wanted=None)).reads == 0


def test_a_registration_applied_again_is_put_right() -> None:
    """It is looked at every now and then, and not every second."""
    assert followed(Api(), times=5).reads == 1
    assert followed(Api(), times=3, apart=EVERY).reads == 3


def test_an_order_of_our_own_is_not_relied_on() -> None:
    """Whoever put another hook first does not have it changed."""
    api = Api()
    api.stored["webhooks"].reverse()

    assert followed(api).policies[HOOK] == "Ignore"


def test_a_silent_api_server_is_left_alone_for_a_while() -> None:
    """It is asked at the next look, not in a loop."""
    assert followed(Api(down=True), times=2).reads == 1
