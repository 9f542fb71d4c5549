"""Late commits: what a pod that was bound past our hook is to be promised, or why nothing.

Such a pod may be running already, on devices of which the ledger knows nothing. What it is known
to use is promised to it and nothing else; only a pod that uses nothing yet may be given something
(docs/design.md, commit rules 5 and 6). Where that is, annotations may say; how much it is, only the
request, which nobody can change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec
import orjson

from allocator.catalog.annotations import ASSIGNMENT_KEY
from allocator.catalog.vocabularies import OWN
from allocator.core.devicelist import IDS, NODE, parts, wished
from allocator.core.ledger import Ledger, promise_told, wire_of
from allocator.core.podfacts import Seen
from allocator.core.said import said
from allocator.core.settings import NodeAgent
from allocator.model.decision import ContainerGrants
from allocator.model.gpu import Grant
from allocator.model.ledger import Entry
from allocator.model.request import ContainerRequest, Mode
from allocator.model.units import MiB
from webhook.core.binding import Wish, conflict
from webhook.core.bindingreview import Binding, BindingRequest, Bound, LivePod, Target
from webhook.core.bound import Promise, annotations
from webhook.core.podwire import Metadata
from webhook.core.review import Refusal, UserInfo


class How(StrEnum):
    """What a late entry rests on; part of its record."""

    KEPT = "kept"  # the entry is there, the pod was not told
    CONFIRMED = "confirmed"  # the agent found it in use, and the pod tells the same
    TOLD = "told"  # by its annotations alone, on a node of another plugin
    CHOSEN = "chosen"  # it uses nothing yet


@dataclass(frozen=True, slots=True)
class Claim:
    """What a bound pod is to be promised."""

    wish: Wish
    how: How


def as_bound(pod: Seen, user: str) -> Bound:
    """Return the Binding of *pod* as our hook would have seen it."""
    binding = Binding(metadata=Metadata(name=pod.name), target=Target(kind="Node", name=pod.node))
    request = BindingRequest(uid="", user_info=UserInfo(username=user), object=binding)
    return Bound(
        request=request,
        binding=binding,
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
    )


def unbound(live: LivePod) -> LivePod:
    """Return the pod as it was before it was bound, for whoever judges Bindings."""
    return replace(live, node="")


def claimed(
    wish: Wish, ledger: Ledger, document: Mapping[str, Any], *, upstream: bool
) -> Claim | Refusal:
    """Say on what the late promise to a bound pod rests; *document* is *ledger* as it was read."""
    uid, told = wish.live.uid, _told(wish.live)
    entry = ledger.entry(uid)
    if entry is not None:
        return _with(wish, entry.containers, How.KEPT)
    found = next((held for held in ledger.unpromised if held.uid == uid), None)
    if found is not None:
        return _confirmed(wish, found, told, ledger=ledger)
    if upstream:
        return _by_annotations(wish, document, told, ledger=ledger)
    return conflict(_RUNS) if wish.live.started else Claim(wish, How.CHOSEN)


_ANEW: Final = "delete the pod, and let it be scheduled anew"
_DRIFTED: Final = f"its containers use devices that its annotations do not tell of; {_ANEW}"
_RUNS: Final = f"its containers run on devices that nobody promised it; {_ANEW}"


def _confirmed(wish: Wish, found: Entry, told: object, *, ledger: Ledger) -> Claim | Refusal:
    """Promise what the agent *found* where the pod tells the same, by our word or another's."""
    if told is not None:
        holds = _as_asked(wish, found.containers, ledger)
        return _with(wish, holds, How.CONFIRMED) if _same(told, found) else conflict(_DRIFTED)
    listed = _listed(wish, ledger)
    same = listed is not None and _gpus(listed) == _gpus(found.containers)
    return _with(wish, listed, How.CONFIRMED) if listed and same else conflict(_DRIFTED)


def _listed(wish: Wish, ledger: Ledger) -> tuple[ContainerGrants, ...] | None:
    """Return the shares that another scheduler gave to the pod; ``None`` where it named instances.

    Its list says on which GPUs.
    """
    written = wish.live.pod.metadata.annotations or {}
    listed = parts(written.get(IDS, "")) if written.get(NODE) == wish.bound.node else ()
    asks = wish.wanted.request.containers
    memory = {gpu.uuid: gpu.memory for gpu in ledger.node.gpus}
    devices = [device for part in listed for device in part]
    if any(d.position or d.uuid not in memory for d in devices) or len(asks) != len(listed):
        return None
    return tuple(
        ContainerGrants(
            name=ask.name,
            grants=tuple(
                Grant(
                    gpu=device.uuid,
                    mode=wish.wanted.mode or Mode.HAMI_CORE,
                    memory=ask.memory_on(memory[device.uuid]),
                    cores=ask.cores,
                )
                for device in part
            ),
        )
        for ask, part in zip(asks, listed, strict=True)
    )


def _as_asked(
    wish: Wish, told: Iterable[ContainerGrants], ledger: Ledger
) -> tuple[ContainerGrants, ...]:
    """Return the GPUs and places that were *told*, with as much of each as the pod asks for.

    What it does not ask for stays as it was told, and is refused by whoever commits it.
    """
    asks = {ask.name: ask for ask in wish.wanted.request.containers}
    memory = {gpu.uuid: gpu.memory for gpu in ledger.node.gpus}
    mode = wish.wanted.mode or wish.wanted.request.named or Mode.HAMI_CORE
    amounts = partial(_amounts, memory=memory, mode=mode)
    return tuple(
        replace(held, grants=tuple(amounts(grant, asks.get(held.name)) for grant in held.grants))
        for held in told
    )


def _amounts(
    told: Grant, ask: ContainerRequest | None, *, memory: Mapping[str, MiB], mode: Mode
) -> Grant:
    if ask is None:
        return told
    if told.placed is not None:
        return msgspec.structs.replace(told, memory=told.placed.profile.memory, cores=ask.cores)
    if told.gpu not in memory:
        return told
    amount = ask.memory_on(memory[told.gpu])
    return msgspec.structs.replace(told, mode=mode, memory=amount, cores=ask.cores)


def _gpus(containers: Iterable[ContainerGrants]) -> list[str]:
    return sorted(grant.gpu for held in containers for grant in held.grants)


def _with(wish: Wish, holds: tuple[ContainerGrants, ...], how: How) -> Claim:
    return Claim(replace(wish, wanted=replace(wish.wanted, holds=holds)), how)


def _by_annotations(
    wish: Wish, document: Mapping[str, Any], told: object, *, ledger: Ledger
) -> Claim | Refusal:
    """Believe what its own scheduler wrote, because the plugin that serves the node does.

    An assignment of ours says where all of it is; Volcano's list says which GPUs, so it may be no
    other. Where an instance sits it does not say.
    """
    if told is not None:
        pod = {"namespace": wish.bound.namespace, "name": wish.bound.pod, "uid": wish.live.uid}
        entry = promise_told(document, pod, told)
        if entry is None:
            return conflict(_DRIFTED)
        return _with(wish, _as_asked(wish, entry.containers, ledger), How.TOLD)
    if listed := _listed(wish, ledger):
        return _with(wish, listed, How.TOLD)
    written = wish.live.pod.metadata.annotations or {}
    gpus = wished(written.get(IDS, "")) if written.get(NODE) == wish.bound.node else ()
    if not gpus:
        return Claim(wish, How.CHOSEN)
    request = wish.wanted.request
    only = msgspec.structs.replace(request, filters=replace(request.filters, uuids=gpus))
    return Claim(replace(wish, wanted=replace(wish.wanted, request=only)), How.TOLD)


def is_told(live: LivePod) -> bool:
    """Say whether the pod tells of an assignment."""
    return bool((live.pod.metadata.annotations or {}).get(ASSIGNMENT_KEY))


def _told(live: LivePod) -> object:
    """Return the assignment that the pod tells of, ``None`` where there is none to be read."""
    return said((live.pod.metadata.annotations or {}).get(ASSIGNMENT_KEY, ""))


def _same(told: object, entry: Entry) -> bool:
    found: object = orjson.loads(orjson.dumps(wire_of(entry)["containers"]))
    return _unstaged(told) == _unstaged(found)


def _unstaged(containers: object) -> object:
    """Leave out when each runs: the agent goes by the spec, and promises did not always tell."""
    if not isinstance(containers, list):
        return containers
    return [
        {key: value for key, value in one.items() if key != "stage"}
        if isinstance(one, dict)
        else one
        for one in containers
    ]


def telling(promise: Promise, written: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that a late promise adds to a pod that has *written* ones.

    Where a pod's own scheduler and plugin are at work, their six keys are theirs.
    """
    found = annotations(promise, promise.entry.since)
    theirs = promise.served_by is NodeAgent.UPSTREAM
    if theirs and written.get(NODE) == promise.assignment.node:
        return {key: text for key, text in found.items() if key.startswith(OWN)}
    return found
