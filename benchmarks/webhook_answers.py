"""Checks that the answer to a review rewrites its pod, with an independent library."""

import base64
import json
from typing import Any

import jsonpatch

Json = dict[str, Any]

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


class WrongAnswerError(Exception):
    """An answer that is not the patch it should be; the text says what it did instead."""


def apply_patch(review: bytes, answer: bytes) -> bytes:
    """Return *review* with the pod as *answer* changes it.

    Raises :class:`WrongAnswerError` unless the patch applies, loses nothing of what was there,
    and leaves every container with exactly one word on which GPUs it sees.
    """
    asked, response = json.loads(review), json.loads(answer)["response"]
    if response["uid"] != asked["request"]["uid"] or not response["allowed"]:
        raise WrongAnswerError(f"not allowed: {str(response)[:256]}")
    if response.get("patchType") != "JSONPatch":
        raise WrongAnswerError(f"no patch: {str(response)[:256]}")
    before = asked["request"]["object"]
    after = jsonpatch.apply_patch(before, json.loads(base64.b64decode(response["patch"])))
    if not _keeps(before, after):
        raise WrongAnswerError("the patch drops something from the pod")
    spec = after["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        if [entry["name"] for entry in container["env"]].count(VISIBLE) != 1:
            raise WrongAnswerError(f"container {container['name']} can see every GPU")
    return json.dumps(asked | {"request": asked["request"] | {"object": after}}).encode()


def check_idempotent(review: bytes, answer: bytes) -> None:
    """Raise :class:`WrongAnswerError` if *answer* would change the pod of *review* once more."""
    response = json.loads(answer)["response"]
    if not response["allowed"] or "patch" in response:
        name = json.loads(review)["request"]["uid"]
        raise WrongAnswerError(f"a second pass changes the pod of review {name}")


def _keeps(before: object, after: object) -> bool:
    """Say whether *after* has all that *before* has, and lists only grew at their end."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in after and _keeps(value, after[key]) for key, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return len(before) <= len(after) and all(map(_keeps, before, after))
    return before == after
