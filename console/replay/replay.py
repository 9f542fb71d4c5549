"""Replay: a stored decision decided again on its own request, settings and snapshot.

The functions are those that decide about pods. Nothing is asked of the cluster and nothing is
reserved.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocator.audit.record import (
    AdmissionRecord,
    AdmissionVerdict,
    BindRecord,
    BindVerdict,
    FindingPart,
    GivenPart,
    LateCommitRecord,
    SettingsRecord,
    SnapshotRecord,
)
from allocator.config.node_templates import expected_kinds
from allocator.config.settings import DEFAULTS, Settings, SettingsError, settings_of
from allocator.ledger.assign import NoFit, PodClaim, assign
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Assignment
from allocator.model.decision import Findings, Reason
from allocator.model.demand import Demand
from allocator.model.gpu import GpuKind, Node
from allocator.model.untrusted import quote
from allocator.placement.choose import PlacementPolicy
from allocator.placement.mode import ModeOutcome, choose_mode
from allocator.replay.content import ReplayContentError, content_digest
from allocator.replay.decision_fields import given_fields, mode_fields, refusal_fields
from allocator.replay.fleet_codec import decode_fleet
from allocator.replay.node_codec import decode_node, demand_of_fields, with_rows
from allocator.replay.recorded_request import RecordedRequest
from allocator.replay.request_codec import decode_request
from console.languages.messages import NOTHING, PageMessage, message
from console.replay.outcome import NotReplayable, Replay, compared

NO_CONFIGMAP: Final = "defaults"  # the digest where no settings were ever read
# Reasons of refusals that follow from the whole pod, of which a record keeps the request alone.
WHOLE_POD: Final = frozenset(
    {
        Reason.EPHEMERAL,
        Reason.INCOMPLETE,
        Reason.NODE_NAME,
        Reason.PRIORITY,
        Reason.PRIVILEGED,
        Reason.RESERVED_ANNOTATION,
        Reason.RESERVED_MOUNT,
        Reason.RESERVED_VARIABLE,
        Reason.UNREADABLE,
    }
)

_NO_DIGEST: Final = message("of no digest")
_NO_REQUEST: Final = message(
    "its record keeps no request: it is too long, or of a program that kept none"
)


class _Unavailable(Exception):  # noqa: N818 -- caught here, never an error of the program
    """Why something that a decision rests on is not to be had."""

    def __init__(self, why: PageMessage) -> None:
        super().__init__(why)
        self.why = why


def replay_admission(
    record: AdmissionRecord,
    settings: SettingsRecord | None,
    snapshot: SnapshotRecord | None,
    *,
    version: str,
) -> Replay:
    """Decide again about a pod at CREATE; *version* is of this program."""
    question = admission_question(record, settings, snapshot)
    if isinstance(question, NotReplayable):
        return question
    decision = question.outcome.decision
    if isinstance(decision, Findings):
        replayed = {"outcome": AdmissionVerdict.REFUSED, **refusal_fields(decision)}
    elif record.outcome is AdmissionVerdict.REFUSED and record.reason in WHOLE_POD:
        return NotReplayable(
            message(
                "it was refused with {reason}, which follows from the whole pod; its request alone"
                " would be admitted in mode {mode}",
                reason=record.reason,
                mode=decision.mode,
            )
        )
    else:
        replayed = {"outcome": AdmissionVerdict.REWRITTEN, **mode_fields(decision)}
    return compared(_admission_fields(record), replayed, versions=(record.version, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionQuestion:
    """What a pod's admission was decided on, and what this version decides on it."""

    asked: RecordedRequest
    offers: Mapping[GpuKind, int]  # also those of nodes that a template promises
    outcome: ModeOutcome


def admission_question(
    record: AdmissionRecord, settings: SettingsRecord | None, snapshot: SnapshotRecord | None
) -> AdmissionQuestion | NotReplayable:
    """Decode what *record* rests on, and decide about the request again."""
    why = _admission_obstacle(record)
    if why:
        return NotReplayable(why)
    try:
        in_force = _settings(record.settings, settings)
        fleet = decode_fleet(_content(record.snapshot, snapshot))
        asked = decode_request(record.asked, fleet.vocabularies)
    except (_Unavailable, ReplayContentError) as error:
        return NotReplayable(_sentence(error))
    outcome = choose_mode(
        asked.request,
        fleet.snapshot,
        settings=in_force,
        namespace=asked.namespace,
        earlier=asked.earlier,
    )
    offers = expected_kinds(fleet.offers, in_force.node_templates)
    return AdmissionQuestion(asked=asked, offers=offers, outcome=outcome)


def _admission_obstacle(record: AdmissionRecord) -> PageMessage:
    """Return why a decision cannot be made again whatever is stored; empty if it can."""
    if record.outcome is AdmissionVerdict.ERROR:
        return message("the pod could not be read, so nothing was decided")
    if record.outcome is AdmissionVerdict.UNTOUCHED:
        return message("the pod asks for no GPU, so nothing was chosen")
    if not record.asked and record.outcome is AdmissionVerdict.REFUSED:
        return message(
            "it was refused with {reason} before its request was known; only the whole pod, which"
            " is not kept, could be decided again",
            reason=record.reason or message("no reason"),
        )
    if not record.asked:
        return _NO_REQUEST
    return NOTHING


def _admission_fields(record: AdmissionRecord) -> Mapping[str, Any]:
    """Return the decision of *record* in the fields that a replay yields."""
    if record.outcome is AdmissionVerdict.REFUSED:
        return {
            "outcome": record.outcome,
            "reason": record.reason,
            "findings": [_finding(finding) for finding in record.findings],
        }
    return {
        "outcome": record.outcome,
        "mode": record.mode,
        "mode_source": record.mode_source,
        "costs_per_mille": record.costs_per_mille,
        "rule": record.rule,
    }


def _finding(finding: FindingPart) -> dict[str, str]:
    return {"reason": finding.reason, "text": finding.text, "field": finding.field}


def replay_bind(
    record: BindRecord,
    settings: SettingsRecord | None,
    snapshot: SnapshotRecord | None,
    *,
    version: str,
) -> Replay:
    """Decide again which GPUs a pod gets on its node; *version* is of this program."""
    question = bind_question(record, settings, snapshot)
    if isinstance(question, NotReplayable):
        return question
    node = question.node
    assigned = assign(_ledger(node), question.claim, policy=question.policy, demand=question.demand)
    replayed = _assigned_fields(node, assigned)
    recorded = _bind_fields(record, str(replayed.get("text", "")))
    return compared(recorded, replayed, versions=(record.version, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class BindQuestion:
    """What a bind was decided on."""

    node: Node
    claim: PodClaim
    policy: PlacementPolicy
    demand: Demand


def bind_question(
    record: BindRecord, settings: SettingsRecord | None, snapshot: SnapshotRecord | None
) -> BindQuestion | NotReplayable:
    """Decode what *record* rests on."""
    why = _bind_obstacle(record)
    if why:
        return NotReplayable(why)
    try:
        return _decoded_bind(record, settings, snapshot)
    except (_Unavailable, ReplayContentError) as error:
        return NotReplayable(_sentence(error))


def _decoded_bind(
    record: BindRecord, settings: SettingsRecord | None, snapshot: SnapshotRecord | None
) -> BindQuestion:
    """Decode what is stored; raises :class:`_Unavailable` or ``ReplayContentError``."""
    in_force = _settings(record.settings, settings)
    there = decode_node(_content(record.snapshot, snapshot))
    asked = decode_request(record.asked, there.vocabularies)
    node = with_rows(
        there.node,
        record.taken,
        record.live,
        positions=record.taken_positions,
        shares=record.taken_shares,
    )
    claim = PodClaim(
        uid=record.pod_uid,
        request=asked.request,
        mode=asked.final,
        gpus=record.wished,
        hard_policy=record.hard_policy,
        positions=record.positions,
    )
    policy = PlacementPolicy(
        prefer=asked.namespace.prefer or in_force.prefer,
        geometries=there.geometries,
        fill_policies=in_force.fill_policies,
    )
    demand = demand_of_fields(record.demand)
    return BindQuestion(node=node, claim=claim, policy=policy, demand=demand)


def _assigned_fields(node: Node, assigned: Assignment | NoFit) -> dict[str, Any]:
    """Return the outcome as the fields of a bind's record."""
    if isinstance(assigned, NoFit):
        text = f"node {quote(node.name)}: {assigned.finding} [{assigned.finding.reason}]"
        reason = str(assigned.finding.reason)
        return {"outcome": BindVerdict.REFUSED, "reason": reason, "text": text}
    return {
        "outcome": BindVerdict.PROMISED,
        "mode": str(assigned.mode),
        "containers": given_fields(assigned.containers),
    }


def _bind_obstacle(record: BindRecord) -> PageMessage:
    """Return why a bind cannot be decided again whatever is stored; empty if it can."""
    if isinstance(record, LateCommitRecord):
        return message(
            "the pod was bound past the hook, and its entry follows from what it runs on"
        )
    if record.outcome is BindVerdict.ELSEWHERE:
        return message("the pod was left to another device plugin, so nothing was chosen")
    if record.earlier:
        return message("the pod had an entry on the node already, which stays as it is")
    if not record.snapshot:
        return message("its record keeps no snapshot of the node")
    if not record.asked:
        return _NO_REQUEST
    return NOTHING


def _bind_fields(record: BindRecord, expected: str) -> Mapping[str, Any]:
    """Return the answer of *record* in the fields that a replay yields.

    The text of a refusal may go on with pods that have no entry, whom the node does not tell of.
    """
    if record.outcome is BindVerdict.REFUSED:
        text = expected if expected and record.text.startswith(expected) else record.text
        return {"outcome": record.outcome, "reason": record.reason, "text": text}
    return {
        "outcome": record.outcome,
        "mode": record.mode,
        "containers": [_given(given) for given in record.containers],
    }


def _given(given: GivenPart) -> dict[str, Any]:
    return {
        "name": given.name,
        "devices": [
            {
                "gpu": device.gpu,
                "mode": device.mode,
                "memory_mib": device.memory_mib,
                "cores_percent": device.cores_percent or 0,
                **({"profile": device.profile, "start": device.start} if device.profile else {}),
            }
            for device in given.devices
        ],
    }


def _ledger(node: Node) -> Ledger:
    """Return *node* as the ledger of an open node without an entry of the pod."""
    return Ledger(
        name=node.name,
        uid="",
        resource_version="",
        generation=0,
        inventory="recorded",
        boot="",
        node_uid="",
        driver="",
        observed_generation=0,
        deleting=False,
        held=frozenset(),
        entry_uids=None,
        entries=(),
        unpromised=(),
        node=node,
    )


def _settings(digest: str, stored: SettingsRecord | None) -> Settings:
    """Return the settings that were in force; raises :class:`_Unavailable`."""
    if stored is None and digest == NO_CONFIGMAP:
        return DEFAULTS
    if stored is None or stored.content_digest != digest:
        raise _Unavailable(message("settings {digest} are not stored", digest=digest or _NO_DIGEST))
    try:
        return settings_of(stored.text)
    except SettingsError as error:
        why = message(
            "settings {digest} cannot be read by this version: {error}",
            digest=digest,
            error=str(error),
        )
        raise _Unavailable(why) from error


def _content(digest: str, stored: SnapshotRecord | None) -> Mapping[str, Any]:
    """Return what was decided on; raises :class:`_Unavailable`."""
    if stored is None or stored.content_digest != digest:
        raise _Unavailable(message("snapshot {digest} is not stored", digest=digest or _NO_DIGEST))
    if content_digest(stored.content) != digest:
        raise _Unavailable(message("snapshot {digest} is not what its digest says", digest=digest))
    return stored.content


def _sentence(error: _Unavailable | ReplayContentError) -> PageMessage:
    if isinstance(error, ReplayContentError):
        return message("this version cannot read what was recorded: {error}", error=str(error))
    return error.why
