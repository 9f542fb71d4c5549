"""An API server that only reviews tokens and rights, as the real one answers."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Unpack

from console.access.reviews_client import ACCESS_REVIEWS, TOKEN_REVIEWS
from kube.client import CallOptions
from kube.errors import ApiError, KubeError
from tests.fakes.api_client import FakeApiClient

Grant = tuple[str, str, str, str]  # user or group, verb, resource, namespace or "*"


class FakeReviews(FakeApiClient):
    """Knows tokens and grants; ``error`` is raised instead, ``hanging`` answers never."""

    __slots__ = ("asked", "audience", "error", "grants", "hanging", "raw", "users")

    def __init__(self) -> None:
        self.users: dict[str, Mapping[str, Any]] = {}  # by token
        self.audience = ""  # that tokens are for; "" is that of the API server
        self.grants: set[Grant] = set()
        self.error: KubeError | None = None
        self.raw: bytes | None = None
        self.hanging = False
        self.asked: list[Mapping[str, Any]] = []

    def add_user(self, token: str, user: str, *grants: tuple[str, str, str], **more: Any) -> None:  # noqa: ANN401 -- JSON
        """Let *token* be that of *user*, who has *grants*."""
        self.users[token] = {"username": user, "uid": f"uid-{user}", **more}
        self.grants |= {(user, *grant) for grant in grants}

    async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
        review = json.loads(body)
        self.asked.append(review)
        if self.hanging:
            await asyncio.sleep(options["timeout"])
            raise ApiError(504, "Timeout", "nobody answered")
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if self.raw is not None:
            return self.raw
        answers = {TOKEN_REVIEWS: self._token_status, ACCESS_REVIEWS: self._access_status}
        return json.dumps({**review, "status": answers[path](review["spec"])}).encode()

    def _token_status(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        user = self.users.get(spec["token"])
        wanted = spec.get("audiences") or [""]
        if user is None or self.audience not in wanted:
            return {"error": "invalid bearer token"}
        audience = self.audience or "https://kubernetes.default.svc"  # it names its own, too
        return {"authenticated": True, "user": user, "audiences": [audience]}

    def _access_status(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        attributes = spec["resourceAttributes"]
        subjects = {spec["user"], *spec.get("groups", ())}
        where = {attributes["namespace"], "*"} if attributes["namespace"] else {"*"}
        allowed = any(
            (who, attributes["verb"], attributes["resource"], place) in self.grants
            for who in subjects
            for place in where
        )
        return {"allowed": allowed}
