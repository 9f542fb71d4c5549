"""A client that calls the webhook as an API server does, and words refusals as kubectl does."""

import base64
import ssl
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import aiohttp
import orjson

from allocator.config.manifest import ManifestPod
from allocator.model.untrusted import escaped
from webhook.plan.plan import Answer
from webhook.review.admission_review import API_VERSION, KIND
from webhook.review.pod_schema import Pod

HOOK: Final = "pods.vgpu-admission.io"  # its name in manifests/base/registrations.yaml
PATIENCE: Final = 10  # seconds, as long as an API server waits for a hook by default


class HookError(Exception):
    """A review that was not answered as the protocol demands."""


def session(authority: bytes) -> aiohttp.ClientSession:
    """Return connections that trust *authority*, a PEM certificate, and nobody else."""
    trusting = ssl.create_default_context(cadata=authority.decode())
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trusting),
        timeout=aiohttp.ClientTimeout(total=PATIENCE),
    )


async def ask_hook(calls: aiohttp.ClientSession, url: str, made: ManifestPod[Pod]) -> Answer:
    """Send one pod and return what came back; raises :class:`HookError`."""
    headers = {"Content-Type": "application/json"}
    async with calls.post(url, data=review(made), headers=headers) as reply:
        body = await reply.read()
        if reply.status != HTTPStatus.OK:
            text = escaped(body.decode(errors="replace"))
            raise HookError(f"the webhook answered {reply.status}: {text}")
    response = orjson.loads(body)["response"]
    patch = base64.b64decode(response.get("patch", ""))
    status = response.get("status", {})
    return Answer(
        allowed=response["allowed"],
        operations=tuple(orjson.loads(patch)) if patch else (),
        warnings=tuple(response.get("warnings", ())),
        message=status.get("message", ""),
        reason=status.get("reason", ""),
    )


def review(made: ManifestPod[Pod]) -> bytes:
    """Return the review that an API server sends when the pod *made* is created."""
    request = {
        "uid": str(uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": made.namespace,
        "userInfo": {"username": "demo", "groups": ["system:authenticated"]},
        "dryRun": False,
        "object": made.sent,
    }
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "request": request})


def with_user_message(answer: Answer, made: ManifestPod[Pod], file: str) -> Answer:
    """Return *answer* with its refusal as a user reads it: from kubectl, or in an Event.

    kubectl words a refusal by the reason in the status; a controller's Event does not.
    """
    if answer.allowed:
        return answer
    denied = f'admission webhook "{HOOK}" denied the request: {answer.message}'
    if made.kind != "Pod":
        return replace(answer, message=f"Error creating: {denied}")
    start = "The request is invalid" if answer.reason == "Invalid" else _SERVER_ERROR
    where = f'error when creating "{file}"'
    return replace(answer, message=f"{start}: {where}: {denied}")


_SERVER_ERROR: Final = "Error from server (Forbidden)"
