"""Late commits: entries for pods that were bound without the bind webhook.

Such a pod may already run on GPUs that the ledger does not know of. It gets an entry for exactly
what it is known to use; only a pod that uses nothing yet gets new GPUs. Annotations may say which
GPUs; the amounts always come from the request, which is immutable
(docs/design.md, commit rules 5 and 6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import orjson

from allocator.catalog.hami_keys import ALLOCATED_KEY, NODE_KEY
from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.catalog.vocabularies import OWN
from allocator.families.registry import family_of
from allocator.hami.device_list import parse_hami_list, wished_gpus
from allocator.ledger.commit import wire_of
from allocator.ledger.ledger import Ledger, annotated_entry
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.request import ContainerRequest, Mode
from allocator.model.units import MiB
from allocator.model.untrusted import parse_untrusted_json
from allocator.request.pod_summary import PodSummary
from allocator.volcano.device_list import (
    LIST_ANNOTATION,
    LIST_NODE_ANNOTATION,
    ListedDevice,
    listed_uuids,
    parse_device_list,
)
from webhook.binding.binding_annotations import Commit, annotations
from webhook.binding.decide import BindRequest, conflict
from webhook.review.admission_review import Refusal, UserInfo
from webhook.review.binding_schema import (
    Binding,
    BindingMetadata,
    BindingRequest,
    BindingReview,
    BindingTarget,
    LivePod,
)


class LateBasis(StrEnum):
    """What a late entry rests on; part of its record."""

    KEPT = "kept"  # the entry exists, the annotations are missing
    CONFIRMED = "confirmed"  # the agent reports the use, and the annotations agree
    TOLD = "told"  # from the annotations alone, on a node of another plugin
    CHOSEN = "chosen"  # it uses nothing yet


@dataclass(frozen=True, slots=True)
class LateClaim:
    """The entry wanted for a bound pod, and what it rests on."""

    bind: BindRequest
    how: LateBasis


def as_bound(pod: PodSummary, user: str) -> BindingReview:
    """Return the Binding of *pod* as the webhook would have seen it."""
    binding = Binding(
        metadata=BindingMetadata(name=pod.name), target=BindingTarget(kind="Node", name=pod.node)
    )
    request = BindingRequest(uid="", user_info=UserInfo(username=user), object=binding)
    return BindingReview(
        request=request,
        binding=binding,
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
    )


def as_unbound(live: LivePod) -> LivePod:
    """Return the pod without its node, as :func:`judge` expects it."""
    return replace(live, node="")


def late_claim(
    bind: BindRequest, ledger: Ledger, document: Mapping[str, Any], *, upstream: bool
) -> LateClaim | Refusal:
    """Return the claim of a bound pod, or why it has none; *document* is the JSON of *ledger*."""
    uid, assignment = bind.live.uid, _annotated_assignment(bind.live)
    entry = ledger.entry(uid)
    if entry is not None:
        return _claim_with(bind, entry.containers, LateBasis.KEPT)
    in_use = next((held for held in ledger.unpromised if held.uid == uid), None)
    if in_use is not None:
        return _confirm(bind, in_use, assignment, ledger=ledger)
    if upstream:
        return _by_annotations(bind, document, assignment, ledger=ledger)
    return conflict(_RUNS) if bind.live.started else LateClaim(bind, LateBasis.CHOSEN)


_ANEW: Final = "delete the pod so that it is rescheduled"
_DRIFTED: Final = f"its containers use other GPUs than its annotations name; {_ANEW}"
_RUNS: Final = f"its containers use GPUs without an entry in the ledger; {_ANEW}"


def _charged_text(entry: Entry) -> str:
    """Say where a pod is charged that no annotation tells the GPUs of."""
    gpus = ", ".join(dict.fromkeys(_gpus(entry.containers)))
    return (
        f"its containers started without an entry; what it asks for is charged on {gpus}; {_ANEW}"
    )


def _confirm(
    bind: BindRequest, entry: Entry, assignment: object, *, ledger: Ledger
) -> LateClaim | Refusal:
    """Claim what the agent found in use if the annotations agree."""
    if assignment is not None:
        holds = _as_asked(bind, entry.containers, ledger)
        return (
            _claim_with(bind, holds, LateBasis.CONFIRMED)
            if _is_same(assignment, entry)
            else conflict(_DRIFTED)
        )
    if not _listed_gpus(bind):
        return conflict(_charged_text(entry))
    listed = _listed_grants(bind, ledger)
    same = listed is not None and _gpus(listed) == _gpus(entry.containers)
    return _claim_with(bind, listed, LateBasis.CONFIRMED) if listed and same else conflict(_DRIFTED)


def _listed_grants(bind: BindRequest, ledger: Ledger) -> tuple[ContainerGrants, ...] | None:
    """Return the shares that another scheduler gave to the pod; ``None`` where it named instances.

    Its list says on which GPUs.
    """
    listed, mode = _listed_devices(bind), _mode_of(bind)
    container_requests = bind.wanted.request.containers
    memory = {gpu.uuid: gpu.memory for gpu in ledger.node.gpus}
    devices = [device for part in listed.values() for device in part]
    if any(d.position or d.uuid not in memory for d in devices):
        return None
    if any(not listed.get(container_request.name) for container_request in container_requests):
        return None
    return tuple(
        ContainerGrants(
            name=container_request.name,
            grants=tuple(
                Grant(
                    gpu=device.uuid,
                    mode=mode,
                    memory=container_request.memory_on(memory[device.uuid]),
                    cores=container_request.cores,
                    share=container_request.share,
                )
                for device in listed[container_request.name]
            ),
        )
        for container_request in container_requests
    )


def _mode_of(bind: BindRequest) -> Mode:
    """Return the mode that admission chose, or that a pod asks for which it never saw."""
    return bind.wanted.mode or bind.wanted.request.named_mode or Mode.HAMI_CORE


def _listed_devices(bind: BindRequest) -> Mapping[str, Sequence[ListedDevice]]:
    """Return what another scheduler listed for its node, by container.

    Volcano lists the containers that ask, HAMi all of them and init containers first.
    """
    pod, node = bind.live.pod, bind.bound.node
    written = pod.metadata.annotations or {}
    parts: Sequence[Sequence[ListedDevice]]
    names: Sequence[str]
    if family_of(bind.wanted.request).inventory is not None:  # its plugin reads no other list
        parts = [[ListedDevice(uuid, 0, 0) for uuid in part] for part in _listed_by_family(bind)]
        names = _container_names(bind)
    elif written.get(LIST_NODE_ANNOTATION) == node:
        parts = parse_device_list(written.get(LIST_ANNOTATION, ""))
        names = [container_request.name for container_request in bind.wanted.request.containers]
    elif written.get(NODE_KEY) == node:
        parts = parse_hami_list(written.get(ALLOCATED_KEY, "")) or ()
        names = _container_names(bind)
    else:
        return {}
    return dict(zip(names, parts, strict=True)) if len(names) == len(parts) else {}


def _listed_by_family(bind: BindRequest) -> Sequence[Sequence[str]]:
    """Return the UUIDs of each container that are written for its family's own plugin."""
    written = bind.live.pod.metadata.annotations or {}
    if written.get(NODE_KEY, bind.bound.node) != bind.bound.node:
        return ()
    return family_of(bind.wanted.request).listed_uuids(written)


def _container_names(bind: BindRequest) -> Sequence[str]:
    spec = bind.live.pod.spec
    return [container.name for container in (*(spec.init_containers or ()), *spec.containers)]


def _as_asked(
    bind: BindRequest, grants_by_container: Iterable[ContainerGrants], ledger: Ledger
) -> tuple[ContainerGrants, ...]:
    """Return *grants_by_container* with as much of each GPU as the pod asks for.

    Grants of containers that ask for nothing stay as they are; the commit refuses them.
    """
    container_requests = {
        container_request.name: container_request
        for container_request in bind.wanted.request.containers
    }
    memory = {gpu.uuid: gpu.memory for gpu in ledger.node.gpus}
    amounts = partial(_amounts, memory=memory, mode=_mode_of(bind))
    return tuple(
        replace(
            held,
            grants=tuple(
                amounts(grant, container_requests.get(held.name)) for grant in held.grants
            ),
        )
        for held in grants_by_container
    )


def _amounts(
    grant: Grant,
    container_request: ContainerRequest | None,
    *,
    memory: Mapping[str, MiB],
    mode: Mode,
) -> Grant:
    if container_request is None:
        return grant
    if grant.placed is not None:
        return msgspec.structs.replace(
            grant, memory=grant.placed.profile.memory, cores=container_request.cores
        )
    if grant.gpu not in memory:
        return grant
    amount = container_request.memory_on(memory[grant.gpu])
    return msgspec.structs.replace(
        grant,
        mode=mode,
        memory=amount,
        cores=container_request.cores,
        share=container_request.share,
    )


def _gpus(containers: Iterable[ContainerGrants]) -> list[str]:
    return sorted(grant.gpu for held in containers for grant in held.grants)


def _claim_with(bind: BindRequest, holds: tuple[ContainerGrants, ...], how: LateBasis) -> LateClaim:
    return LateClaim(replace(bind, wanted=replace(bind.wanted, in_use=holds)), how)


def _by_annotations(
    bind: BindRequest, document: Mapping[str, Any], annotated: object, *, ledger: Ledger
) -> LateClaim | Refusal:
    """Believe what its own scheduler wrote, because the plugin that serves the node does.

    Volcano's list says which GPUs, so it may be no other; where an instance sits it does not say.
    An assignment of ours says where all of it is. Anybody may write one, so beside a list it
    counts only where it names the same GPUs.
    """
    gpus = _listed_gpus(bind)
    if annotated is not None:
        pod = {"namespace": bind.bound.namespace, "name": bind.bound.pod, "uid": bind.live.uid}
        entry = annotated_entry(document, pod, annotated)
        if entry is not None and (not gpus or set(_gpus(entry.containers)) == set(gpus)):
            return _claim_with(bind, _as_asked(bind, entry.containers, ledger), LateBasis.TOLD)
        if not gpus:
            return conflict(_DRIFTED)
    if listed := _listed_grants(bind, ledger):
        return _claim_with(bind, listed, LateBasis.TOLD)
    if not gpus:
        return LateClaim(bind, LateBasis.CHOSEN)
    request = bind.wanted.request
    only = msgspec.structs.replace(request, filters=replace(request.filters, uuids=gpus))
    return LateClaim(replace(bind, wanted=replace(bind.wanted, request=only)), LateBasis.TOLD)


def _listed_gpus(bind: BindRequest) -> tuple[str, ...]:
    """Return the UUIDs in another scheduler's list for this node."""
    written = bind.live.pod.metadata.annotations or {}
    if uuids := _listed_by_family(bind):
        return tuple(dict.fromkeys(chain.from_iterable(uuids)))
    if family_of(bind.wanted.request).inventory is not None:
        return ()  # its plugin reads no other list
    if written.get(LIST_NODE_ANNOTATION) != bind.bound.node:
        return wished_gpus(written, bind.bound.node)
    return listed_uuids(written.get(LIST_ANNOTATION, ""))


def has_assignment(live: LivePod) -> bool:
    """Say whether the pod tells of an assignment."""
    return bool((live.pod.metadata.annotations or {}).get(ASSIGNMENT_KEY))


def _annotated_assignment(live: LivePod) -> object:
    """Return the assignment that the pod tells of, ``None`` where there is none to be read."""
    return parse_untrusted_json((live.pod.metadata.annotations or {}).get(ASSIGNMENT_KEY, ""))


def _is_same(assignment: object, entry: Entry) -> bool:
    committed: object = orjson.loads(orjson.dumps(wire_of(entry)["containers"]))
    return _without_stages(assignment) == _without_stages(committed)


def _without_stages(containers: object) -> object:
    """Leave out when each runs: the agent goes by the spec, and promises did not always tell."""
    if not isinstance(containers, list):
        return containers
    return [
        {key: value for key, value in one.items() if key != "stage"}
        if isinstance(one, dict)
        else one
        for one in containers
    ]


def late_annotations(commit: Commit, written: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that a late promise adds to a pod that has *written* ones.

    Where a pod's own scheduler and plugin are at work, their keys are theirs.
    """
    values = annotations(commit, commit.entry.since)
    nodes = written.get(LIST_NODE_ANNOTATION), written.get(NODE_KEY)
    if commit.served_by.is_other and commit.assignment.node in nodes:
        return {key: text for key, text in values.items() if key.startswith(OWN)}
    return values
