"""The earlier pass: what annotations of an earlier admission say, and when to believe them.

A pod may be reviewed twice, and a manifest may be copied from a live pod. The annotation
``asked`` is believed only if rewriting it again would yield the very fields that are present;
otherwise it is dropped and the pod is taken as new, so that a forged one gains nothing.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import orjson

from allocator.catalog.vocabularies import Vocabulary
from allocator.request.admitted import Asked, EarlierPass
from webhook.review.pod_schema import Container, Pod

_DIGITS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS: Final = tuple(one + other for one in _DIGITS for other in _DIGITS)


def encode_asked(asked: Asked) -> str:
    """Return the compact JSON that the annotation holds."""
    return orjson.dumps({"mode": asked.mode, "containers": asked.containers}, default=dict).decode()


def digest_of(asked: str, *, namespace: str, owner: str, constraints: tuple[str, ...]) -> str:
    """Return ten characters that name what was *asked*, the same for every retry of an owner."""
    body = orjson.dumps([namespace, owner, asked, constraints])
    return _in_base32(hashlib.blake2b(body, digest_size=7).digest())


def _in_base32(digest: bytes) -> str:
    """Return the first ten digits of *digest*, two at a time: a library's loop takes far longer."""
    number = int.from_bytes(digest, "big") >> 8 * len(digest) - 50
    return "".join([_PAIRS[number >> shift & 1023] for shift in (40, 30, 20, 10, 0)])


def visible_resources(container: Container, vocabulary: Vocabulary) -> dict[str, str]:
    """Return the vocabulary's resources as they stand in *container*, slot included."""
    resources = container.resources
    shown: dict[str, str] = {}
    if resources is None:
        return shown
    names = _resource_names(vocabulary)
    for source in (resources.limits, resources.requests):
        if source:
            for name in names:
                if name in source and name not in shown:
                    shown[name] = str(source[name])
    return shown


@lru_cache(maxsize=8)
def _resource_names(vocabulary: Vocabulary) -> tuple[str, ...]:
    return (*vocabulary.resources, vocabulary.slot)


def as_it_stands(pod: Pod) -> Asked:
    """Return all that a pod's containers ask for, for one whose request cannot be read."""
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    return Asked(
        containers={
            container.name: {
                name: str(amount)
                for side in (container.resources.requests, container.resources.limits)
                for name, amount in (side or {}).items()
            }
            for container in containers
            if container.resources is not None
        }
    )


def confirm_earlier(
    earlier: EarlierPass, now: Mapping[str, Mapping[str, str]], *, vocabulary: Vocabulary
) -> EarlierPass | None:
    """Return *earlier* if rewriting what it was asked yields the fields that are present.

    *now* holds each asking container's resources as they stand; one that a later injector
    added was not asked about, and is from now on.
    """
    asked = earlier.asked.containers
    if not asked.keys() <= now.keys():
        return None
    if not all(_rewrites_to(asked[name], now[name], vocabulary=vocabulary) for name in asked):
        return None
    both = Asked(mode=earlier.asked.mode, containers={**now, **asked})
    return EarlierPass(asked=both, choice=earlier.choice)


def _rewrites_to(
    asked: Mapping[str, str], now: Mapping[str, str], *, vocabulary: Vocabulary
) -> bool:
    """Say whether rewriting *asked* gives *now*: the slot added, a percentage translated."""
    expected = dict(asked)
    expected.setdefault(vocabulary.slot, now.get(vocabulary.slot, ""))
    percent, memory = vocabulary.percent, vocabulary.memory
    if percent is None or memory is None:
        return expected == now
    if percent in expected and percent not in now and memory in now:
        del expected[percent]
        expected.setdefault(memory, now[memory])
    return expected == now
