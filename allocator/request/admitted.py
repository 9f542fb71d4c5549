"""What admission wrote on a pod: the mode, how it came about, and what was asked before.

Anybody may write these annotations. ``asked`` is the evidence of an earlier pass: admission writes
it together with the mode. A mode counts as chosen by admission only if ``asked`` is present;
otherwise the user named it. The bind hook, the extender, ``plan`` and
``kubectl vgpu`` all read a pod by this module, so that they agree.

Not compiled (see ``compiled.py``): mypyc drops the keywords of ``_AskedWire``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from allocator.catalog.keys import ASKED_KEY, DECISION_KEY, MODE_KEY, MODE_SOURCE_KEY, SERVED_BY_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.model.decision import ModeChoice, ModeSource
from allocator.model.request import VOCABULARY_MODES, Mode, PodRequest
from allocator.model.value import Value

_LONGEST: Final = 16 * 1024  # characters of an annotation that are worth decoding
_MODES: Final = {str(mode): mode for mode in Mode}
_SOURCES: Final = {str(source): source for source in ModeSource}


class Asked(Value, frozen=True):
    """What a pod asked for before admission rewrote it."""

    mode: str | None = None  # as the user named it
    # Amounts by container name, then by resource name.
    containers: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)


class _AskedWire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: str | None = None
    containers: dict[str, dict[str, str]] = {}


_DECODER: Final = msgspec.json.Decoder(_AskedWire)


class AdmissionMarks(Value, frozen=True):
    """The annotations of admission, unverified; ``None`` or empty where missing or unknown."""

    mode: Mode | None = None
    source: ModeSource | None = None
    digest: str = ""
    served_by: str = ""


class EarlierPass(Value, frozen=True):
    """What the pod asked for at an earlier pass, and the mode chosen then."""

    asked: Asked
    choice: ModeChoice


class AdmittedRequest(Value, frozen=True):
    """What a pod asks for, as it was first asked."""

    vocabulary: Vocabulary
    request: PodRequest  # without a mode that admission chose
    source: ModeSource  # how the mode came about
    mode: Mode | None  # final; None: the request names it, or it was the best and may be revised
    earlier: EarlierPass | None  # None: no earlier pass, or an inconsistent one


def admission_marks(
    annotations: Mapping[str, str], vocabulary: Vocabulary | None
) -> AdmissionMarks:
    """Return the annotations that admission writes, unverified.

    The mode is under the vocabulary's key or under ours.
    """
    key = vocabulary.mode_key if vocabulary is not None else None
    mode = (annotations.get(key) if key else None) or annotations.get(MODE_KEY, "")
    return AdmissionMarks(
        mode=_MODES.get(mode),
        source=_SOURCES.get(annotations.get(MODE_SOURCE_KEY, "")),
        digest=annotations.get(DECISION_KEY, ""),
        served_by=annotations.get(SERVED_BY_KEY, ""),
    )


def earlier_pass(annotations: Mapping[str, str], vocabulary: Vocabulary) -> EarlierPass | None:
    """Return the earlier pass that *annotations* record; ``None`` if missing or inconsistent."""
    text = annotations.get(ASKED_KEY, "")
    if not text or len(text) > _LONGEST:
        return None
    marks = admission_marks(annotations, vocabulary)
    if marks.mode is None or marks.source is None:
        return None
    try:
        wire = _DECODER.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    named = marks.mode if marks.source is ModeSource.NAMED else None
    if wire.mode != named:
        return None
    choice = ModeChoice(mode=marks.mode, source=marks.source, why="decided by an earlier pass")
    asked = Asked(mode=wire.mode, containers=wire.containers)
    return EarlierPass(asked=asked, choice=choice)


def without_chosen_mode(request: PodRequest, earlier: EarlierPass | None) -> PodRequest:
    """Return *request* without a mode that admission chose and the user did not name.

    Every pod is believed here: a forged annotation only leaves the choice to us.
    """
    unnamed = earlier is not None and earlier.asked.mode is None
    if unnamed and named_mode(request):
        return msgspec.structs.replace(request, mode=None, mode_key=None)
    return request


def named_mode(request: PodRequest) -> Mode | None:
    """Return the mode the user named, not one that comes with the vocabulary."""
    return None if request.named_mode in VOCABULARY_MODES else request.named_mode


def admitted_request(
    annotations: Mapping[str, str], request: PodRequest, vocabularies: Sequence[Vocabulary]
) -> AdmittedRequest:
    """Return what a pod asked for first, from its current *annotations* and *request*."""
    vocabulary = next(v for v in vocabularies if v.name == request.vocabulary)
    earlier = earlier_pass(annotations, vocabulary)
    request = without_chosen_mode(request, earlier)
    source, mode = ModeSource.BEST if request.named_mode is None else ModeSource.NAMED, None
    if earlier is not None:
        source = earlier.choice.source
        mode = None if source is ModeSource.BEST else earlier.choice.mode
    return AdmittedRequest(
        vocabulary=vocabulary, request=request, source=source, mode=mode, earlier=earlier
    )
