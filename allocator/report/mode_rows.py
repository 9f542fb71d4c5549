"""Mode rows: which modes a pod could have here, how it would ask for each, and whether that fits.

Admission weighs few of them, and records the costs of those. The rows are made for people, of what
vocabularies and families say about modes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from allocator.catalog.keys import MODE_KEY, PROFILE_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy, isolation_finding
from allocator.families.registry import family_of
from allocator.model.allocation import Assignment
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode, PodRequest
from allocator.placement.choose import FitVerdict, in_mode, place_in
from allocator.placement.fit import hardware
from allocator.placement.refusals import unservable_findings
from allocator.report.feasibility import FleetSearch
from allocator.report.terminal_lines import Line, Tone, counted, row
from allocator.report.vocabulary_list import modes_in
from allocator.request.wording import vocabulary_of


class ModeAccess(StrEnum):
    """How a pod comes to a mode. Public API: never rename, only add."""

    ASKED = "asked"  # it names the mode, or its resources set it
    WEIGHED = "weighed"  # compared with others, because it names none
    BY_NAME = "by-name"  # with one annotation more
    OTHER_RESOURCES = "other-resources"  # in the words of another vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRow:
    """One mode for one pod; ``verdict`` is ``None`` where nothing was looked for."""

    mode: Mode
    access: ModeAccess
    how: str  # it is asked for, in words
    verdict: FitVerdict | None = None
    place: str = ""  # where it fits, in words
    missing: str = ""  # why it does not fit, or is not admitted
    absent: bool = False  # no GPU is in the mode


def mode_rows(
    request: PodRequest,
    search: FleetSearch,
    vocabularies: Sequence[Vocabulary],
    *,
    namespace: NamespacePolicy = ANY_MODE,
) -> tuple[ModeRow, ...]:
    """Return a row for each mode that the pod's vocabulary or the fleet of *search* has.

    *vocabularies* are those that are served, with the names of the cluster.
    """
    return tuple(
        _with_place(one, request, search, namespace=namespace)
        for one in _rows(request, search.snapshot, vocabularies)
    )


def _rows(
    request: PodRequest, snapshot: Snapshot, vocabularies: Sequence[Vocabulary]
) -> Iterator[ModeRow]:
    own = vocabulary_of(request)
    there = {(kind.family, kind.mode) for kind in snapshot.offers}
    for mode in Mode:
        if mode is request.named_mode:
            yield ModeRow(mode=mode, access=ModeAccess.ASKED, how=_named_by(request, own))
        elif mode in modes_in(own):
            yield _own_row(mode, request, own)
        else:
            able = [v for v in vocabularies if mode in modes_in(v)]
            others = [v for v in able if (v.family, hardware(mode)) in there]
            if others:
                how = _elsewhere(others, own)
                yield ModeRow(mode=mode, access=ModeAccess.OTHER_RESOURCES, how=how)


def _named_by(request: PodRequest, own: Vocabulary) -> str:
    key = request.mode_key or (PROFILE_KEY if request.profile is not None else "")
    return f"named by {key}" if key else f"set by the resources of {own.name}"


def _own_row(mode: Mode, request: PodRequest, own: Vocabulary) -> ModeRow:
    """Return the row of a mode that pods of the vocabulary may have, and this one does not name."""
    if request.named_mode is None and mode in family_of(request).default_modes:
        how = "weighed"
        return ModeRow(mode=mode, access=ModeAccess.WEIGHED, how=how)
    if mode is own.mode:
        how = f"without {request.mode_key}"
    elif own.mode is not None and own.isolate_key is not None:
        how = f'by name only, {own.isolate_key}: "true"'
    else:
        how = f"by name only, {own.mode_key or own.modes_key or MODE_KEY}: {mode}"
    return ModeRow(mode=mode, access=ModeAccess.BY_NAME, how=how)


def _elsewhere(others: Sequence[Vocabulary], own: Vocabulary) -> str:
    """Return who may ask for a mode that pods of *own* never have."""
    alike = [v for v in others if v.family == own.family]
    names = " or ".join(v.memory or v.slot for v in alike or others)
    if alike:
        return f"only by {names}"
    whose = " and ".join(sorted({v.family for v in others}))
    return f"{whose} only, by {names}; the pod asks in {own.family}'s names"


def _with_place(
    one: ModeRow, request: PodRequest, search: FleetSearch, *, namespace: NamespacePolicy
) -> ModeRow:
    """Look for a place in the mode of a row, where the pod may have it."""
    if one.access is ModeAccess.OTHER_RESOURCES:
        return one
    wanted = in_mode(request, one.mode)
    weak = isolation_finding(namespace, wanted, one.mode)
    if weak is not None:
        return replace(one, missing=f"not admitted: {weak.what}")
    return _searched(one, wanted, search)


def _searched(one: ModeRow, wanted: PodRequest, search: FleetSearch) -> ModeRow:
    """Return *one* with where *wanted* fits, or what is missing.

    What no GPU could serve is told without a search, because thousands of nodes take a while.
    """
    there = hardware(one.mode)
    within = _in_hardware_mode(search.snapshot, there, wanted.family)
    never = FitVerdict.NEVER if within.complete else FitVerdict.NOT_NOW
    if not within.nodes:
        missing = f"no GPU here is in mode {there}"
        return replace(one, verdict=never, missing=missing, absent=True)
    findings = unservable_findings(wanted, within.offers, mixed=within.mixed)
    if findings:
        return replace(one, verdict=never, missing=findings[0].what)
    found = place_in(within, wanted, policy=search.policy)
    if found is not None:
        return replace(one, verdict=FitVerdict.FITS, place=_place(found, search.snapshot))
    count = counted(sum(len(node.gpus) for node in within.nodes.values()), "GPU")
    missing = f"nothing free for it on the {count} in mode {there}"
    return replace(one, verdict=FitVerdict.NOT_NOW, missing=missing)


def _in_hardware_mode(snapshot: Snapshot, mode: Mode, family: str) -> Snapshot:
    """Return *snapshot* with the GPUs of *family* in *mode* alone."""
    nodes = {
        name: replace(node, gpus=gpus)
        for name, node in snapshot.nodes.items()
        if (gpus := tuple(gpu for gpu in node.gpus if gpu.mode is mode and gpu.family == family))
    }
    return replace(snapshot, nodes=nodes)


def _place(found: Assignment, snapshot: Snapshot) -> str:
    """Return the GPUs of a pod that fits, by their numbers on the node."""
    numbers = {gpu.uuid: gpu.index for gpu in snapshot.nodes[found.node].gpus}
    grants = [grant for container in found.containers for grant in container.grants]
    indexes = sorted({numbers[grant.gpu] for grant in grants})
    gpus = "GPU" if len(indexes) == 1 else "GPUs"
    return f"{gpus} {', '.join(map(str, indexes))} of {found.node}"


def row_text(one: ModeRow, *, nodes: bool = True) -> str:
    """Return a row as a sentence; *nodes* says whether they may be named."""
    if one.verdict is FitVerdict.FITS:
        answer = f"fits {one.place}" if nodes else "fits"
    elif one.absent or one.verdict is None:
        answer = one.missing
    elif one.verdict is FitVerdict.NEVER:
        answer = f"never fits: {one.missing}"
    else:
        answer = f"does not fit now: {one.missing}"
    return f"{one.mode}: {'; '.join(filter(None, (one.how, answer)))}"


def mode_row_lines(rows: Sequence[ModeRow], *, nodes: bool = True) -> Iterator[Line]:
    """Yield a line for each mode; *nodes* says whether they may be named."""
    for number, one in enumerate(rows):
        tone = Tone.GOOD if one.verdict is FitVerdict.FITS else Tone.PLAIN
        yield from row("" if number else "modes", row_text(one, nodes=nodes), tone)


def mode_row_documents(rows: Sequence[ModeRow]) -> list[Mapping[str, Any]]:
    """Return the rows as JSON values."""
    return [
        {
            "mode": one.mode,
            "access": one.access,
            "how": one.how,
            "verdict": one.verdict,
            "place": one.place or None,
            "missing": one.missing or None,
        }
        for one in rows
    ]
