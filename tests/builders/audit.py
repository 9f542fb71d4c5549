"""Records of decisions for tests: what the product decides, as its programs record it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from allocator.audit.record import (
    AdmissionRecord,
    BindRecord,
    Component,
    SettingsRecord,
    SnapshotRecord,
)
from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.config.settings import settings_of
from allocator.ledger.assign import NoFit, PodClaim, assign
from allocator.ledger.ledger import Ledger
from allocator.mig.geometry import Geometries
from allocator.model.decision import Findings
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Node, Snapshot
from allocator.placement.choose import PlacementPolicy
from allocator.placement.mode import choose_mode
from allocator.replay.content import content_digest
from allocator.replay.decision_fields import given_fields, mode_fields, refusal_fields
from allocator.replay.fleet_codec import encode_fleet
from allocator.replay.node_codec import (
    demand_fields,
    encode_node,
    live_rows,
    taken_positions,
    taken_rows,
)
from allocator.replay.request_codec import RecordedRequest, encode_request
from tests.builders.gpunodes import ledger

AT = "2026-11-21T12:00:00.000+00:00"
VERSION = "1.2.3"
COMMON: Mapping[str, Any] = {"id": "1", "at": AT, "component": Component.WEBHOOK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A decision with all that it rests on, as a store would return it."""

    admission: AdmissionRecord | None = None
    bind: BindRecord | None = None
    settings: SettingsRecord
    snapshot: SnapshotRecord


def settings_record(text: str = "") -> SettingsRecord:
    return SettingsRecord(
        **COMMON, configmap="vgpu-admission-settings", content_digest="s1", text=text
    )


def snapshot_record(content: dict[str, Any]) -> SnapshotRecord:
    read = msgspec.json.decode(msgspec.json.encode(content))
    return SnapshotRecord(**COMMON, content_digest=content_digest(content), content=read)


def recorded_admission(
    asked: RecordedRequest,
    fleet: Snapshot,
    *,
    settings: str = "",
    words: Sequence[Vocabulary] = VOCABULARIES,
    **fields: object,
) -> Recorded:
    """Decide about *asked* on *fleet* as admission does, and record it."""
    chosen = choose_mode(
        asked.request,
        fleet,
        settings=settings_of(settings),
        namespace=asked.namespace,
        earlier=asked.earlier,
    ).decision
    refused = isinstance(chosen, Findings)
    decided = refusal_fields(chosen) if isinstance(chosen, Findings) else mode_fields(chosen)
    there = snapshot_record(encode_fleet(fleet, words))
    document = {
        "kind": "admission",
        **COMMON,
        "step": "mutate",
        "outcome": "refused" if refused else "rewritten",
        "version": VERSION,
        "asked": encode_request(asked),
        "settings": "s1",
        "snapshot": there.content_digest,
        **decided,
        **fields,
    }
    return Recorded(
        admission=msgspec.convert(document, AdmissionRecord),
        settings=settings_record(settings),
        snapshot=there,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A pod that is bound to a node."""

    asked: RecordedRequest
    node: Node
    gpus: tuple[str, ...] = ()
    hard_policy: str = ""
    settings: str = ""
    geometries: Geometries | None = None
    demand: Demand = NOTHING_LEARNED
    fields: Mapping[str, Any] = field(default_factory=dict)


def recorded_bind(bound: Bound) -> Recorded:
    """Decide about *bound* as the hook of Bindings does, and record it."""
    asked, in_force = bound.asked, settings_of(bound.settings)
    claim = PodClaim(
        uid="uid-1",
        request=asked.request,
        mode=asked.final,
        gpus=bound.gpus,
        hard_policy=bound.hard_policy,
    )
    policy = PlacementPolicy(
        prefer=asked.namespace.prefer or in_force.prefer,
        geometries=bound.geometries,
        fill_policies=in_force.fill_policies,
    )
    assigned = assign(_ledger(bound.node), claim, policy=policy, demand=bound.demand)
    if isinstance(assigned, NoFit):
        finding = assigned.finding
        text = f'node "{bound.node.name}": {finding} [{finding.reason}]; 2 pods use GPUs there'
        decided: dict[str, Any] = {
            "outcome": "refused",
            "reason": str(finding.reason),
            "text": text,
        }
    else:
        given = given_fields(assigned.containers)
        decided = {"outcome": "promised", "mode": str(assigned.mode), "containers": given}
    there = snapshot_record(encode_node(bound.node, geometries=bound.geometries))
    document = {
        "kind": "bind",
        **COMMON,
        "version": VERSION,
        "pod_uid": "uid-1",
        "node": bound.node.name,
        "asked": encode_request(asked),
        "wished": bound.gpus,
        "hard_policy": bound.hard_policy,
        "settings": "s1",
        "snapshot": there.content_digest,
        "taken": taken_rows(bound.node),
        "taken_positions": taken_positions(bound.node),
        "live": live_rows(bound.node),
        "demand": demand_fields(bound.demand, bound.node),
        **decided,
        **bound.fields,
    }
    return Recorded(
        bind=msgspec.convert(msgspec.to_builtins(document), BindRecord),
        settings=settings_record(bound.settings),
        snapshot=there,
    )


def _ledger(node: Node) -> Ledger:
    """Return a ledger of *node* whose grants are of pods without an entry here."""
    return replace(ledger(node), node=node)
