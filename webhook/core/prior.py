"""The earlier pass: what a pod's own annotations say was asked, and when to believe them.

A pod may be reviewed twice, and a manifest may be copied from a live pod. The annotation
``asked`` is believed only if rewriting it again would yield the very fields that are present;
otherwise it is dropped and the pod is taken as new, so that a forged one gains nothing.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec
import orjson

from allocator.catalog.annotations import ASKED_KEY, MODE_KEY, MODE_SOURCE_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.model.decision import ModeChoice, Source
from allocator.model.request import Mode, PodRequest
from webhook.core.outcome import Asked, AskedWire
from webhook.core.podwire import Container, Pod

_LONGEST: Final = 16 * 1024  # characters of an annotation that we bother to decode

_DIGITS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS: Final = tuple(one + other for one in _DIGITS for other in _DIGITS)
_DECODER: Final = msgspec.json.Decoder(AskedWire)


def encoded(asked: Asked) -> str:
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


def visible(container: Container, vocabulary: Vocabulary) -> dict[str, str]:
    """Return the vocabulary's resources as they stand in *container*, slot included."""
    resources = container.resources
    found: dict[str, str] = {}
    if resources is None:
        return found
    names = _shown(vocabulary)
    for source in (resources.limits, resources.requests):
        if source:
            for name in names:
                if name in source and name not in found:
                    found[name] = str(source[name])
    return found


@lru_cache(maxsize=8)
def _shown(vocabulary: Vocabulary) -> tuple[str, ...]:
    return (*vocabulary.resources, vocabulary.slot)


def as_it_stands(pod: Pod) -> Asked:
    """Return all that a pod's containers ask for, for one whose request cannot be read."""
    everyone = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    return Asked(
        containers={
            container.name: {
                name: str(amount)
                for side in (container.resources.requests, container.resources.limits)
                for name, amount in (side or {}).items()
            }
            for container in everyone
            if container.resources is not None
        }
    )


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier pass was asked and what it chose."""

    asked: Asked
    choice: ModeChoice


def claimed(pod: Pod, vocabulary: Vocabulary) -> Earlier | None:
    """Return what the pod's annotations say of an earlier pass, if they make sense at all."""
    present = pod.metadata.annotations or {}
    text = present.get(ASKED_KEY, "")
    if not text or len(text) > _LONGEST:
        return None
    try:
        wire = _DECODER.decode(text)
        source = Source(present.get(MODE_SOURCE_KEY, ""))
        mode = Mode(mode_annotation(present, vocabulary))
        named = None if wire.mode is None else Mode(wire.mode)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if (source is Source.NAMED) != (named is not None) or (named is not None and named != mode):
        return None
    choice = ModeChoice(mode=mode, source=source, why="decided by an earlier pass")
    return Earlier(Asked(mode=wire.mode, containers=wire.containers), choice)


def borne_out(
    earlier: Earlier, now: Mapping[str, Mapping[str, str]], *, vocabulary: Vocabulary
) -> Earlier | None:
    """Return *earlier* if rewriting what it was asked yields the fields that are present.

    *now* holds each asking container's resources as they stand; one that a later injector
    added was not asked about, and is from now on.
    """
    asked = earlier.asked.containers
    if not asked.keys() <= now.keys():
        return None
    if not all(_yields(asked[name], now[name], vocabulary=vocabulary) for name in asked):
        return None
    return Earlier(Asked(mode=earlier.asked.mode, containers={**now, **asked}), earlier.choice)


def mode_annotation(present: Mapping[str, str], vocabulary: Vocabulary) -> str:
    """Return the mode that the pod carries, under the vocabulary's key or ours."""
    standing = present.get(vocabulary.mode_key, "") if vocabulary.mode_key else ""
    return standing or present.get(MODE_KEY, "")


def _yields(asked: Mapping[str, str], now: Mapping[str, str], *, vocabulary: Vocabulary) -> bool:
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


def as_first_asked(request: PodRequest, earlier: Earlier | None) -> PodRequest:
    """Return *request* without a mode that we wrote and the user did not name.

    Believed of any pod that says so: whoever forges it only leaves the choice to us.
    """
    unnamed = earlier is not None and earlier.asked.mode is None
    if unnamed and named_mode(request):
        return msgspec.structs.replace(request, mode=None)
    return request


def named_mode(request: PodRequest) -> Mode | None:
    """Return the mode the user named; memory-only is not named, it comes with its vocabulary."""
    return None if request.named is Mode.MEMORY_ONLY else request.named


@dataclass(frozen=True, slots=True)
class Admitted:
    """What an admitted pod asks for: *source* is how its mode came about.

    ``mode`` is the one that is final; one that was merely the best at CREATE may be revised.
    """

    vocabulary: Vocabulary
    request: PodRequest
    source: Source
    mode: Mode | None


def admitted(pod: Pod, request: PodRequest, vocabularies: Sequence[Vocabulary]) -> Admitted:
    """Return what *pod* asks for by *request*, which was read from it as it stands."""
    vocabulary = next(v for v in vocabularies if v.name == request.vocabulary)
    earlier = claimed(pod, vocabulary)
    request = as_first_asked(request, earlier)
    if earlier is None:
        unnamed = request.named is None
        return Admitted(vocabulary, request, Source.BEST if unnamed else Source.NAMED, None)
    choice = earlier.choice
    final = choice.source is not Source.BEST
    return Admitted(vocabulary, request, choice.source, choice.mode if final else None)
