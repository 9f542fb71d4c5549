"""Candidates then: what every GPU answered to a stored decision, on its own snapshot.

The answers are those of the functions that decide. An admission looks at kinds of GPU as if they
were empty, a bind at the GPUs of one node with what was taken on them.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

import msgspec

from allocator.audit.record import AdmissionRecord, BindRecord, SettingsRecord, SnapshotRecord
from allocator.model.decision import Candidate, ModeChoice, Reason
from allocator.model.demand import NOTHING_LEARNED
from allocator.model.gpu import Gpu, GpuKind, Node
from allocator.model.request import Mode, PodRequest
from allocator.placement.candidates import candidates
from allocator.placement.choose import GpuRank, empty_node, gpu_ranks, in_mode, node_candidates
from allocator.placement.fit import hardware
from allocator.placement.mig import MigOptions
from allocator.placement.mode import cost_on, weighed_modes
from console.get.candidates import CandidateList, CandidateRow, candidate_list
from console.languages.messages import NOTHING, PageMessage, message
from console.replay.outcome import NotReplayable
from console.replay.replay import (
    AdmissionQuestion,
    BindQuestion,
    admission_question,
    bind_question,
)


def admission_candidates(
    record: AdmissionRecord,
    settings: SettingsRecord | None,
    snapshot: SnapshotRecord | None,
    *,
    version: str,
) -> CandidateList:
    """Return what each kind of GPU answered at admission; *version* is of this program."""
    question = admission_question(record, settings, snapshot)
    if isinstance(question, NotReplayable):
        return CandidateList(unknown=question.why)
    return candidate_list(list(_kind_rows(question)), _version_note(record.version, version))


def bind_candidates(
    record: BindRecord,
    settings: SettingsRecord | None,
    snapshot: SnapshotRecord | None,
    *,
    version: str,
) -> CandidateList:
    """Return what each GPU of the node answered at a bind; *version* is of this program.

    Which were given is what the record says, not what comes out now.
    """
    question = bind_question(record, settings, snapshot)
    if isinstance(question, NotReplayable):
        return CandidateList(unknown=question.why)
    rows = list(_gpu_rows(question, record))
    return candidate_list(rows, _version_note(record.version, version))


def _version_note(before: str, now: str) -> PageMessage:
    if before == now:
        return NOTHING
    return message(
        "version {before} decided then; version {now} computed these rows",
        before=before or message("unknown"),
        now=now,
    )


def _kind_rows(question: AdmissionQuestion) -> Iterator[CandidateRow]:
    request = _asked_at_admission(question)
    modes = weighed_modes(request)
    chosen = _chosen_kind(request, question)
    options = MigOptions(demand=NOTHING_LEARNED, geometries=None, named=request.profile)
    for kind, count in question.offers.items():
        mode = next((mode for mode in modes if hardware(mode) is kind.mode), None)
        cost = None
        if mode is not None and request.accepts_kind(kind):
            cost = cost_on(request, kind, count, mode=mode)
        answers = candidates([_one_of(kind)], request, modes=modes, mig_options=options)
        for answer, asking in zip(answers, request.containers, strict=True):
            row = _kind_row(_counted(answer, asking.count, count=count, cost=cost), kind, count)
            yield replace(row, named=kind == chosen, cost_per_mille=cost if row.fits else None)


def _asked_at_admission(question: AdmissionQuestion) -> PodRequest:
    """Return the request as modes were weighed for it: without UUIDs, which no kind has."""
    request, asked = question.outcome.request, question.asked
    filters = replace(request.filters, uuids=(), not_uuids=())
    request = msgspec.structs.replace(request, filters=filters)
    only = asked.namespace.only_mode
    if asked.earlier is None and only is not None and request.named_mode is None:
        return in_mode(request, only)
    return request


def _chosen_kind(request: PodRequest, question: AdmissionQuestion) -> GpuKind | None:
    """Return the kind that made the chosen mode cheapest; ``None`` where none serves it."""
    decision = question.outcome.decision
    if not isinstance(decision, ModeChoice) or not decision.mode_costs:
        return None
    priced = [
        (cost, kind.model, kind)
        for kind, count in question.offers.items()
        if kind.mode is hardware(decision.mode)
        and request.accepts_kind(kind)
        and (cost := cost_on(request, kind, count, mode=decision.mode)) is not None
    ]
    return min(priced, key=lambda each: each[:2])[2] if priced else None


def _one_of(kind: GpuKind) -> Node:
    """Return a node with one empty GPU of *kind*."""
    gpu = Gpu(
        uuid="",
        index=0,
        model=kind.model,
        memory=kind.memory,
        mode=kind.mode,
        slots=1,
        board=kind.board,
        family=kind.family,
    )
    return empty_node(Node(name="", gpus=(gpu,)))


def _counted(answer: Candidate, asked: int, *, count: int, cost: int | None) -> Candidate:
    """Return the *answer* of one GPU for the number *asked* for, of at most *count*."""
    if answer.reason is not None:
        return answer
    if asked > count:
        detail = f"{asked} are asked for; no node has more than {count}"
        return replace(answer, reason=Reason.TOO_MANY, detail=detail)
    if cost is None:
        detail = "not all containers of the pod fit at once"
        return replace(answer, reason=Reason.TOO_MANY, detail=detail)
    return answer


def _kind_row(answer: Candidate, kind: GpuKind, count: int) -> CandidateRow:
    return CandidateRow(
        container=answer.container,
        model=kind.model,
        memory_mib=kind.memory,
        mode=str(answer.mode),
        fits=answer.reason is None,
        reason=answer.reason or "",
        detail=answer.detail,
        count=count,
    )


def _gpu_rows(question: BindQuestion, record: BindRecord) -> Iterator[CandidateRow]:
    node, claim = question.node, question.claim
    request = in_mode(claim.request, claim.mode)
    policy = replace(question.policy, preferred_positions=claim.positions)
    ranks = {
        (rank.position, rank.gpu): rank
        for rank in gpu_ranks(node, request, policy=policy, demand=question.demand)
    }
    given = {(part.name, device.gpu) for part in record.containers for device in part.devices}
    gpus = {gpu.uuid: gpu for gpu in node.gpus}
    answers = node_candidates(node, request, policy=policy, demand=question.demand)
    # Each GPU answers to the containers in their order.
    for answer, position in zip(answers, cycle(range(len(request.containers))), strict=False):
        yield _gpu_row(
            answer,
            gpus[answer.gpu],
            ranks.get((position, answer.gpu)),
            named=(answer.container, answer.gpu) in given,
            wished=answer.gpu in claim.gpus,
        )


def _gpu_row(
    answer: Candidate, gpu: Gpu, rank: GpuRank | None, *, named: bool, wished: bool
) -> CandidateRow:
    mode: Mode = answer.mode
    return CandidateRow(
        container=answer.container,
        model=gpu.model,
        memory_mib=gpu.memory,
        mode=str(mode),
        fits=answer.reason is None,
        reason=answer.reason or "",
        detail=answer.detail,
        cost_per_mille=None if rank is None else rank.cost,
        named=named,
        node=answer.node,
        gpu=gpu.uuid,
        index=gpu.index,
        rank=None if rank is None else rank.rank,
        wished=wished,
    )
