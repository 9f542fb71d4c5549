"""Commitment: which GPUs a pod is promised on the node that a scheduler bound it to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from allocator.ledger.ledger import Ledger, node_for
from allocator.model.allocation import Assignment, ContainerGrants, Grant
from allocator.model.decision import Finding, Reason
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode, PodRequest
from allocator.model.units import WHOLE_GPU
from allocator.model.usage import peak_grants
from allocator.placement.choose import FitVerdict, PlacementPolicy, choose, in_mode, place_on
from allocator.placement.fit import hardware
from allocator.placement.fleet import snapshot_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """What pod *uid* is to get; ``mode`` is final unless it is ``None``.

    ``gpus`` are those that a scheduler picked, ``positions`` the MIG positions that it picked on
    some of them: a wish, which needs no belief. ``holds`` is what its containers may be using
    already: nothing else will do then.
    """

    uid: str
    request: PodRequest
    mode: Mode | None = None
    gpus: tuple[str, ...] = ()
    positions: tuple[tuple[str, str], ...] = ()
    holds: tuple[ContainerGrants, ...] = ()


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why the pod gets nothing here; ``later`` says that it might once others are gone."""

    finding: Finding
    later: bool


def assign(
    ledger: Ledger, wanted: PodClaim, *, terms: PlacementPolicy, demand: Demand = NOTHING_LEARNED
) -> Assignment | NoFit:
    """Choose on one node: the earlier entry, else the scheduler's choice, else the best place.

    An earlier entry that is still valid is kept as it is, because the Binding that carries it may
    still arrive. One whose containers may have started is never exchanged
    (docs/design.md, commit rule 3).
    """
    if ledger.closed:
        return NoFit(_closed_finding(ledger), later=True)
    node = node_for(ledger, wanted.uid)
    entry = ledger.entry(wanted.uid)
    earlier = wanted.holds or (() if entry is None else entry.containers)
    if earlier and (kept := _earlier_assignment(node, earlier, wanted)) is not None:
        return kept
    if wanted.holds or wanted.uid in ledger.held:  # its containers use just that already
        return NoFit(_taken_finding(), later=True)
    assignment, wish = None, _wish(wanted)
    if wish is not None:
        near = replace(terms, wished=wanted.positions)
        assignment = place_on(node, in_mode(wish, wanted.mode), terms=near, demand=demand)
    if assignment is None:
        request = in_mode(wanted.request, wanted.mode)
        assignment = place_on(node, request, terms=terms, demand=demand)
    if assignment is not None:
        return _in_order(assignment, node)
    snapshot = snapshot_of((node,), version="", complete=False, demand=demand)
    choice = choose(snapshot, wanted.request, mode=wanted.mode, node=node.name, terms=terms)
    return NoFit(choice.findings[0], later=choice.verdict is not FitVerdict.NEVER)


def _wish(wanted: PodClaim) -> PodRequest | None:
    """Return the request narrowed to those of the scheduler's GPUs that the user accepts."""
    request = wanted.request
    gpus = tuple(uuid for uuid in wanted.gpus if request.filters.uuid_fits(uuid))
    if not gpus:
        return None
    return msgspec.structs.replace(request, filters=replace(request.filters, uuids=gpus))


def _in_order(assignment: Assignment, node: Node) -> Assignment:
    """List each container's GPUs by index: limit *k* is that of the k-th GPU NVML lists."""
    index = {gpu.uuid: gpu.index for gpu in node.gpus}
    containers = tuple(
        replace(c, grants=tuple(sorted(c.grants, key=lambda g: index[g.gpu])))
        for c in assignment.containers
    )
    return replace(assignment, containers=containers)


def _earlier_assignment(
    node: Node, earlier: Sequence[ContainerGrants], wanted: PodClaim
) -> Assignment | None:
    """Return the assignment of an *earlier* entry that is still valid, else ``None``.

    Other pods cannot have taken it, because each saw it; the inventory may have changed. Which
    containers take turns the pod says itself: promises did not always tell.
    """
    modes = {grant.mode for held in earlier for grant in held.grants}
    fixed = wanted.mode or wanted.request.named_mode
    if len(modes) != 1 or (fixed is not None and fixed not in modes):
        return None
    asks = wanted.request.containers
    if [(container_request.name, container_request.count) for container_request in asks] != [
        (c.name, len(c.grants)) for c in earlier
    ]:
        return None
    containers = tuple(
        held
        if held.stage is container_request.stage
        else replace(held, stage=container_request.stage)
        for container_request, held in zip(asks, earlier, strict=True)
    )
    gpus = {gpu.uuid: gpu for gpu in node.gpus}
    if not _has_room(gpus, peak_grants(containers)):
        return None
    return Assignment(node=node.name, mode=modes.pop(), containers=containers)


def _has_room(gpus: Mapping[str, Gpu], grants: Sequence[Grant]) -> bool:
    """Say whether every GPU exists, works, and has room for its part of *grants*, a pod's."""
    names = {grant.gpu for grant in grants}
    return names <= gpus.keys() and all(
        _holds(gpus[name], [grant for grant in grants if grant.gpu == name]) for name in names
    )


def _holds(gpu: Gpu, own: Sequence[Grant]) -> bool:
    together = replace(gpu, grants=(*gpu.grants, *own))
    if not gpu.healthy or any(hardware(grant.mode) is not gpu.mode for grant in own):
        return False
    if gpu.mode is Mode.MIG:
        return all(_legal(gpu, grant) for grant in own) and not gpu.taken_slots & _mask(own)
    return (
        together.memory_promised + gpu.foreign <= gpu.memory
        and together.cores_promised <= WHOLE_GPU
        and len(together.grants) <= gpu.slots
    )


def _legal(gpu: Gpu, grant: Grant) -> bool:
    placed = grant.placed
    return placed is not None and placed.start in placed.profile.starts and gpu.board is not None


def _mask(grants: Sequence[Grant]) -> int:
    mask = 0
    for grant in grants:
        mask |= 0 if grant.placed is None else grant.placed.mask
    return mask


def _taken_finding() -> Finding:
    return Finding(
        reason=Reason.UNHEALTHY,
        place="pod",
        field="spec.nodeName",
        what="the GPUs in use are promised to other pods, broken, or not as requested",
        remedy="delete the pod so that it is rescheduled",
    )


def _closed_finding(ledger: Ledger) -> Finding:
    return Finding(
        reason=Reason.UNHEALTHY,
        place="pod",
        field="spec.nodeName",
        what=f"this node takes no new pods: {ledger.closed}",
        remedy="wait until it is ready, or use another node",
    )
