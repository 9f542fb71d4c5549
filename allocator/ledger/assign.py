"""Which GPUs a pod gets on the node it is bound to: earlier entry, scheduler's list, best fit."""

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
from allocator.model.untrusted import quote
from allocator.model.usage import peak_grants
from allocator.placement.choose import FitVerdict, PlacementPolicy, choose, in_mode, place_on
from allocator.placement.fit import hardware
from allocator.placement.fleet import snapshot_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """What one pod asks for, and which GPUs it has or should get."""

    uid: str
    request: PodRequest
    mode: Mode | None = None  # final; None leaves the choice open
    gpus: tuple[str, ...] = ()  # UUIDs that the scheduler picked; preferred
    # A policy of the scheduler by which no other GPU will do where it picked some; empty: none.
    hard_policy: str = ""
    positions: tuple[
        tuple[str, str], ...
    ] = ()  # GPU and MIG position that it picked; preferred too
    in_use: tuple[ContainerGrants, ...] = ()  # what its containers may use already; required


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why the pod gets nothing on this node."""

    finding: Finding
    later: bool  # it may fit once other pods are gone


def assign(
    ledger: Ledger, claim: PodClaim, *, policy: PlacementPolicy, demand: Demand = NOTHING_LEARNED
) -> Assignment | NoFit:
    """Return its earlier entry, else a fit on the GPUs the scheduler picked, else the best fit.

    Under a hard policy of the scheduler the pod gets GPUs that it picked, or nothing.

    An earlier entry that is still possible stays unchanged, because the Binding made with it may
    still succeed (docs/design.md, commit rule 3). A held entry is never replaced.
    """
    if ledger.closed:
        return NoFit(_closed_finding(ledger), later=True)
    node = node_for(ledger, claim.uid)
    earlier = _earlier_answer(ledger, node, claim)
    if earlier is not None:
        return earlier
    assignment, narrowed = None, _request_for_picked_gpus(claim)
    if narrowed is not None:
        positioned = replace(policy, preferred_positions=claim.positions)
        assignment = place_on(node, in_mode(narrowed, claim.mode), policy=positioned, demand=demand)
    if assignment is None and claim.hard_policy and claim.gpus:
        return NoFit(_picks_finding(claim), later=True)
    if assignment is None:
        request = in_mode(claim.request, claim.mode)
        assignment = place_on(node, request, policy=policy, demand=demand)
    if assignment is not None:
        return _sort_by_gpu_index(assignment, node)
    snapshot = snapshot_of((node,), version="", complete=False, demand=demand)
    choice = choose(snapshot, claim.request, mode=claim.mode, node=node.name, policy=policy)
    return NoFit(choice.findings[0], later=choice.verdict is not FitVerdict.NEVER)


def _earlier_answer(ledger: Ledger, node: Node, claim: PodClaim) -> Assignment | NoFit | None:
    """Return what an earlier entry or running containers decide; ``None`` where nothing does."""
    entry = ledger.entry(claim.uid)
    earlier = claim.in_use or (() if entry is None else entry.containers)
    running = bool(claim.in_use) or claim.uid in ledger.held  # its containers are on those grants
    if earlier and (assignment := _earlier_assignment(node, earlier, claim)) is not None:
        keeps = running or _keeps_to_picks(earlier, claim)
        return assignment if keeps else NoFit(_pending_finding(claim), later=True)
    return NoFit(_unusable_finding(), later=True) if running else None


def _request_for_picked_gpus(claim: PodClaim) -> PodRequest | None:
    """Return the request restricted to the scheduler's GPUs that the pod's filters accept."""
    request = claim.request
    gpus = tuple(uuid for uuid in claim.gpus if request.filters.uuid_fits(uuid))
    if not gpus:
        return None
    return msgspec.structs.replace(request, filters=replace(request.filters, uuids=gpus))


def _keeps_to_picks(earlier: Sequence[ContainerGrants], claim: PodClaim) -> bool:
    """Say whether *earlier* grants are on the scheduler's GPUs, where only those will do."""
    if not claim.hard_policy or not claim.gpus:
        return True
    return all(grant.gpu in claim.gpus for container in earlier for grant in container.grants)


def _sort_by_gpu_index(assignment: Assignment, node: Node) -> Assignment:
    """Sort each container's GPUs by index, the order of NVML, on which limits by position rely."""
    index = {gpu.uuid: gpu.index for gpu in node.gpus}
    containers = tuple(
        replace(c, grants=tuple(sorted(c.grants, key=lambda g: index[g.gpu])))
        for c in assignment.containers
    )
    return replace(assignment, containers=containers)


def _earlier_assignment(
    node: Node, earlier: Sequence[ContainerGrants], claim: PodClaim
) -> Assignment | None:
    """Return *earlier* grants as an assignment, ``None`` where they are no longer possible.

    No other pod can have taken them, but the inventory may have changed. The stage of a container
    comes from the request, because older entries did not record it.
    """
    modes = {grant.mode for container in earlier for grant in container.grants}
    mode = claim.mode or claim.request.named_mode
    if len(modes) != 1 or (mode is not None and mode not in modes):
        return None
    requests = claim.request.containers
    if [(container_request.name, container_request.count) for container_request in requests] != [
        (c.name, len(c.grants)) for c in earlier
    ]:
        return None
    containers = tuple(
        container
        if container.stage is container_request.stage
        else replace(container, stage=container_request.stage)
        for container_request, container in zip(requests, earlier, strict=True)
    )
    gpus = {gpu.uuid: gpu for gpu in node.gpus}
    if not _has_room(gpus, peak_grants(containers)):
        return None
    return Assignment(node=node.name, mode=modes.pop(), containers=containers)


def _has_room(gpus: Mapping[str, Gpu], grants: Sequence[Grant]) -> bool:
    """Say whether every GPU of *grants*, one pod's, exists, is healthy and has room for them."""
    names = {grant.gpu for grant in grants}
    return names <= gpus.keys() and all(
        _gpu_has_room(gpus[name], [grant for grant in grants if grant.gpu == name])
        for name in names
    )


def _gpu_has_room(gpu: Gpu, grants: Sequence[Grant]) -> bool:
    gpu_with_grants = replace(gpu, grants=(*gpu.grants, *grants))
    if not gpu.healthy or any(hardware(grant.mode) is not gpu.mode for grant in grants):
        return False
    if gpu.mode is Mode.MIG:
        return all(
            _is_legal_placement(gpu, grant) for grant in grants
        ) and not gpu.taken_slots & _slot_mask(grants)
    return (
        gpu_with_grants.memory_promised + gpu.foreign <= gpu.memory
        and gpu_with_grants.cores_promised <= WHOLE_GPU
        and len(gpu_with_grants.grants) <= gpu.slots
    )


def _is_legal_placement(gpu: Gpu, grant: Grant) -> bool:
    placed = grant.placed
    return placed is not None and placed.start in placed.profile.starts and gpu.board is not None


def _slot_mask(grants: Sequence[Grant]) -> int:
    mask = 0
    for grant in grants:
        mask |= 0 if grant.placed is None else grant.placed.mask
    return mask


def _unusable_finding() -> Finding:
    return Finding(
        reason=Reason.UNHEALTHY,
        place="pod",
        field="spec.nodeName",
        what="the GPUs in use are promised to other pods, broken, or not as requested",
        remedy="delete the pod so that it is rescheduled",
    )


def _picks_finding(claim: PodClaim) -> Finding:
    return Finding(
        reason=Reason.CONFLICTING,
        place="pod",
        field="metadata.annotations",
        what=f"{_names(claim.gpus)} cannot take it, and {claim.hard_policy} allows no other GPU",
        remedy="the scheduler will pick again",
    )


def _pending_finding(claim: PodClaim) -> Finding:
    return Finding(
        reason=Reason.CONFLICTING,
        place="pod",
        field="metadata.annotations",
        what=f"an earlier binding gave it a GPU that {claim.hard_policy} may forbid now",
        remedy="the scheduler will retry once that binding has ended",
    )


def _names(picked: Sequence[str]) -> str:
    """Return the first of *picked*, and how many more there are."""
    more = f" and {len(picked) - 1} more" if len(picked) > 1 else ""
    return f"GPU {quote(picked[0])}{more}, picked by the scheduler,"


def _closed_finding(ledger: Ledger) -> Finding:
    return Finding(
        reason=Reason.UNHEALTHY,
        place="pod",
        field="spec.nodeName",
        what=f"this node takes no new pods: {ledger.closed}",
        remedy="wait until it is ready, or use another node",
    )
