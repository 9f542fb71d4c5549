"""A pod's life decided again, as the Decision page and ``kubectl vgpu decisions`` show it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocator.audit.record import AdmissionRecord, BindRecord, SettingsRecord, SnapshotRecord
from allocator.config.namespace_policy import NamespacePolicy
from allocator.model.untrusted import escaped
from allocator.report import feasibility_text
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.feasibility_json import (
    choice_document,
    finding_document,
    outlook_document,
)
from allocator.report.mode_rows import mode_row_documents
from allocator.report.terminal_lines import Line, Tone, row
from console.cluster.snapshot import ClusterView
from console.get.candidate_text import candidates_document
from console.get.candidates import CandidateList, DecisionCandidates
from console.languages.messages import PageMessage, inert_text, joined_text, message
from console.records.rows import StoredRecord
from console.replay.candidates import admission_candidates, bind_candidates
from console.replay.outcome import DifferentDecision, NotReplayable, Replay, SameDecision
from console.replay.replay import replay_admission, replay_bind
from console.replay.what_if import WhatIf, what_if, what_if_lines

NO_CANDIDATES: Final = DecisionCandidates()
_VERDICTS: Final = {
    FeasibilityVerdict.FITS: message("fits now"),
    FeasibilityVerdict.NO_REQUEST: message("no request"),
    FeasibilityVerdict.NOT_NOW: message("not now"),
    FeasibilityVerdict.NEVER: message("never fits"),
    FeasibilityVerdict.REFUSED: message("refused"),
}
_LONGEST_VALUE = 160  # characters of a changed value that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySource:
    """Where replay finds what a decision rests on, by digest; ``version`` is of this program."""

    settings: Callable[[str], SettingsRecord | None]
    snapshot: Callable[[str], SnapshotRecord | None]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLine:
    """One sentence about a replay: ``label`` says of what, ``tone`` is good, warn or bad."""

    label: str
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLife:
    """A decision decided again; ``None`` where the life of the pod has no such record.

    ``today`` is ``None`` where the cluster cannot be read.
    """

    admission: Replay | None = None
    bind: Replay | None = None
    today: WhatIf | NotReplayable | None = None
    candidates: DecisionCandidates = NO_CANDIDATES  # of then; none for whoever may not see nodes


def life_candidates(life: Sequence[StoredRecord], source: ReplaySource) -> DecisionCandidates:
    """Return what GPUs answered to the decisions that :func:`replayed_life` decides again."""
    admission, bind = _last_admission(life), _last_bind(life)
    return DecisionCandidates(
        admission=None if admission is None else _admission_candidates(admission, source),
        bind=None if bind is None else _bind_candidates(bind, source),
    )


def _admission_candidates(record: AdmissionRecord, source: ReplaySource) -> CandidateList:
    return admission_candidates(
        record,
        source.settings(record.settings),
        source.snapshot(record.snapshot),
        version=source.version,
    )


def _bind_candidates(record: BindRecord, source: ReplaySource) -> CandidateList:
    return bind_candidates(
        record,
        source.settings(record.settings),
        source.snapshot(record.snapshot),
        version=source.version,
    )


def replayed_life(
    life: Sequence[StoredRecord],
    source: ReplaySource,
    *,
    site: ClusterView | None = None,
    policy: NamespacePolicy | None = None,
) -> ReplayedLife:
    """Decide again what *life*, the earliest record first, tells of a pod.

    Of several admissions and binds the last one counts, which is the one that the pod has lived
    with. *site* is the cluster today, and *policy* what the
    namespace says of modes today; ``None``: what it said then.
    """
    admission = _last_admission(life)
    bind = _last_bind(life)
    return ReplayedLife(
        admission=None
        if admission is None
        else replay_admission(
            admission,
            source.settings(admission.settings),
            source.snapshot(admission.snapshot),
            version=source.version,
        ),
        bind=None
        if bind is None
        else replay_bind(
            bind,
            source.settings(bind.settings),
            source.snapshot(bind.snapshot),
            version=source.version,
        ),
        today=None
        if site is None or admission is None
        else what_if(admission, site, policy=policy),
    )


def _last_admission(life: Sequence[StoredRecord]) -> AdmissionRecord | None:
    """Return the last admission, one that keeps its request before one that does not."""
    found = [one.record for one in life if isinstance(one.record, AdmissionRecord)]
    keeping = [record for record in found if record.asked]
    return next(iter((*keeping[-1:], *found[-1:])), None)


def _last_bind(life: Sequence[StoredRecord]) -> BindRecord | None:
    found = [one.record for one in life if isinstance(one.record, BindRecord)]
    return found[-1] if found else None


def replay_lines(view: ReplayedLife) -> Iterator[ReplayLine]:
    """Yield sentences about *view*, for a page or a terminal."""
    if view.admission is not None:
        yield from _lines("Admission", view.admission)
    if view.bind is not None:
        yield from _lines("Bind", view.bind)
    match view.today:
        case WhatIf() as today:
            word, tone = feasibility_text.WORDS[today.verdict]
            then = message("decided as then")
            if today.changed:
                then = message("decided otherwise than then")
            text = joined_text("; ", (then, _VERDICTS.get(today.verdict, word.lower())))
            yield ReplayLine(label="Today", text=text, tone=tone)
        case NotReplayable(why=why):
            text = message("cannot be decided: {why}", why=inert_text(why))
            yield ReplayLine(label="Today", text=text, tone=Tone.WARN)
        case None:
            pass


def _lines(label: str, replay: Replay) -> Iterator[ReplayLine]:
    match replay:
        case SameDecision():
            text = message("decided again on its own snapshot: the same")
            yield ReplayLine(label=label, text=text, tone=Tone.GOOD)
        case NotReplayable(why=why):
            text = message("cannot be decided again: {why}", why=inert_text(why))
            yield ReplayLine(label=label, text=text, tone=Tone.WARN)
        case DifferentDecision():
            yield ReplayLine(label=label, text=_difference(replay), tone=Tone.BAD)
            for one in replay.changed:
                text = message(
                    "recorded {before}, now {after}",
                    before=_cut(one.recorded),
                    after=_cut(one.replayed),
                )
                yield ReplayLine(label=one.name, text=text)


def _difference(replay: DifferentDecision) -> PageMessage:
    if not replay.by_version:
        return message(
            "decided again on its own snapshot: different, though version {version} decided both"
            " times",
            version=escaped(replay.version),
        )
    return message(
        "decided again on its own snapshot: different; version {before} decided then, version"
        " {now} now",
        before=escaped(replay.recorded_version or "unknown"),
        now=escaped(replay.version),
    )


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"


def terminal_lines(view: ReplayedLife) -> Iterator[Line]:
    """Yield *view* as lines of a terminal, with the GPUs that the pod would get today."""
    for line in replay_lines(view):
        yield from row(line.label.lower(), line.text, line.tone)
    if isinstance(view.today, WhatIf):
        yield from what_if_lines(view.today)


def replay_document(view: ReplayedLife) -> dict[str, Any]:
    """Return *view* as JSON values; ``null`` where there was nothing to decide again."""
    return {
        "admission": None if view.admission is None else _document(view.admission),
        "bind": None if view.bind is None else _document(view.bind),
        "today": None if view.today is None else _today_document(view.today),
        "candidates": candidates_document(view.candidates),
    }


def _document(replay: Replay) -> dict[str, Any]:
    match replay:
        case SameDecision(fields=fields):
            return {"result": "same", "fields": dict(fields)}
        case DifferentDecision(recorded_version=before, version=now):
            changed = {
                one.name: {
                    "recorded": json.loads(one.recorded),
                    "replayed": json.loads(one.replayed),
                }
                for one in replay.changed
            }
            return {
                "result": "different",
                "changed": changed,
                "recordedVersion": before,
                "version": now,
            }
        case NotReplayable(why=why):
            return {"result": "not-replayable", "why": str(why)}


def _today_document(today: WhatIf | NotReplayable) -> dict[str, Any]:
    if isinstance(today, NotReplayable):
        return {"result": "not-replayable", "why": str(today.why)}
    return {
        "result": "changed" if today.changed else "unchanged",
        "verdict": str(today.verdict),
        "admission": {
            **choice_document(today.fit.choice),
            "findings": [finding_document(finding) for finding in today.fit.findings],
        },
        **outlook_document(today.fit.outlook),
        "modes": mode_row_documents(today.fit.modes),
    }
