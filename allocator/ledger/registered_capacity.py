"""The register for Volcano's scheduler, less everything that it cannot see for itself.

Its plugin deviceshare reads the register annotation and counts the devices in pods' annotations. It
does not check health, and does not see foreign memory, entries whose pod has no annotation yet, or
ended pods that are still on their GPU. All of these are subtracted from memory and slots of their
GPU. Records are never removed, because a node with capacity and without a register crashes the
scheduler; a GPU that may not be used stays listed with nothing to give.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Entry, Grant
from allocator.model.gpu import Gpu
from allocator.model.request import Mode, Stage
from allocator.model.units import WHOLE_GPU, MiB
from allocator.model.usage import peak_grants
from allocator.placement.fit import hardware
from allocator.request.pod_summary import PodSummary
from allocator.volcano.register import (
    HandshakePhase,
    decode_handshake,
    encode_register,
    node_from_register,
)

# Its scheduler drops a node that does not answer within 60 s, and asks anew at every answer, with a
# client of five requests a second.
ANSWER_AFTER: Final = timedelta(seconds=30)


def counted_uids(
    entries: Iterable[Entry], pods: Iterable[PodSummary], *, node: str
) -> frozenset[str]:
    """Return the uids of *entries* that deviceshare counts: of pods on *node* that are not over.

    The Binding wrote the list of devices on them.
    """
    uids = {entry.uid for entry in entries}
    return frozenset(
        pod.uid
        for pod in pods
        if pod.uid in uids and pod.node == node and pod.assignment_json and not pod.over
    )


def full_register(ledger: Ledger, *, present: str, factor: int) -> str:
    """Return the register of the node of *ledger* with nothing subtracted.

    *present* is the one so far, and kept to the letter where it means the same. *factor* is the
    site's gpuMemoryFactor.
    """
    full = encode_register(sorted(ledger.node.gpus, key=_index_then_uuid), factor=factor)
    read = node_from_register(ledger.name, present, factor=factor).node.gpus
    same = not full or full == encode_register(read, factor=factor)
    return present if same else full


def saved_register(shown: str, full: str) -> str:
    """Return what to save beside register *shown* to restore *full*; empty if they are equal."""
    return "" if shown == full else f"{_digest(shown)} {full}"


def restore_register(shown: str, saved: str) -> str:
    """Return the full register from the one *shown* and what was *saved* beside it.

    Where *shown* was written by someone else since, it is the full one itself.
    """
    digest, _, full = saved.partition(" ")
    return full if full and digest == _digest(shown) else shown


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def register_of(ledger: Ledger, counted: Collection[str], *, present: str, factor: int) -> str:
    """Return the annotation for the node of *ledger*; *counted* are uids that deviceshare knows.

    *present* is the annotation so far, with nothing taken off: what it lists stays listed where
    the node's own inventory cannot be believed any more. *factor* is the site's gpuMemoryFactor.
    Empty where nothing is known.
    """
    gpus = ledger.node.gpus or node_from_register(ledger.name, present, factor=factor).node.gpus
    entries = (*ledger.entries, *ledger.unpromised)
    shown = registered_gpus(gpus, entries, counted, closed=bool(ledger.closed))
    # It reads 0 MiB as what it could not read.
    least = MiB(factor)
    return encode_register(
        (replace(gpu, memory=max(gpu.memory, least)) for gpu in shown), factor=factor
    )


def registered_gpus(
    gpus: Collection[Gpu],
    entries: Iterable[Entry],
    counted: Collection[str],
    *,
    closed: bool = False,
) -> tuple[Gpu, ...]:
    """Return *gpus*, by index, with what deviceshare cannot see taken off memory and slots.

    It knows one mode a node, that of the last record, so all get the mode of most of them, and the
    others nothing to give; *closed* says that none may be given out.
    """
    promised = list(entries)
    mode = most_common_mode(gpus)
    return tuple(
        replace(
            _registered_gpu(
                gpu, promised, counted, closed=closed or gpu.mode is not mode or not gpu.healthy
            ),
            mode=mode,
        )
        for gpu in sorted(gpus, key=_index_then_uuid)
    )


def _index_then_uuid(gpu: Gpu) -> tuple[int, str]:
    return gpu.index, gpu.uuid


def most_common_mode(gpus: Iterable[Gpu]) -> Mode:
    """Return the mode in which Volcano's scheduler sees a node; hami-core where both are equal.

    The scheduler reads one mode for all GPUs of a node.
    """
    modes = Counter(gpu.mode for gpu in gpus)
    return max((Mode.HAMI_CORE, Mode.MIG, Mode.MPS), key=lambda mode: modes[mode])


def _registered_gpu(
    gpu: Gpu, entries: Iterable[Entry], counted: Collection[str], *, closed: bool
) -> Gpu:
    seen, held = _counted_and_held(gpu, entries, counted)
    memory = sum(grant.memory for grant in held) - sum(grant.memory for grant in seen)
    cores = gpu.cores_of(held)
    # Cores cannot be registered.
    taken_alone = cores >= WHOLE_GPU and cores > sum(grant.cores for grant in seen)
    free = gpu.slots - (len(held) - len(seen))
    return replace(
        gpu,
        memory=MiB(max(0, gpu.memory - gpu.foreign - memory)),
        # As many as it counts itself: nobody joins, and nobody leaves.
        slots=max(0, min(free, len(seen)) if closed or taken_alone else free),
    )


def _counted_and_held(
    gpu: Gpu, entries: Iterable[Entry], counted: Collection[str]
) -> tuple[list[Grant], list[Grant]]:
    """Return what deviceshare counts on *gpu* by itself, and what is held there, that included."""
    seen: list[Grant] = []
    held: list[Grant] = []
    for entry in entries:
        held += [grant for grant in peak_grants(entry.containers) if grant.gpu == gpu.uuid]
        if entry.uid in counted:
            seen += _listed_grants(gpu, entry)
    return seen, held


def _listed_grants(gpu: Gpu, entry: Entry) -> list[Grant]:
    """Return what a pod's device list has on *gpu*: it is of apps only.

    Of a pod's instances on one GPU deviceshare's account has the first only.
    """
    grants = [
        grant
        for held in entry.containers
        if held.stage is Stage.APP
        for grant in held.grants
        if grant.gpu == gpu.uuid and _is_listed(gpu, grant)
    ]
    return grants[:1] if gpu.mode is Mode.MIG else grants


def _is_listed(gpu: Gpu, grant: Grant) -> bool:
    """Say whether a device list tells deviceshare of *grant*; an instance needs a position."""
    if hardware(grant.mode) is not gpu.mode:
        return False
    return gpu.mode is not Mode.MIG or grant.position is not None


def needs_report(handshake: str, now: datetime) -> bool:
    """Say whether *handshake* wants ``Reported`` written: missing, deleted, or asked for a while.

    An answer is taken for the occasion of the next question, so a question is left to stand.
    """
    current = decode_handshake(handshake)
    if current is None or current.phase is not HandshakePhase.REQUESTING:
        return current is None or current.phase is HandshakePhase.DELETED
    return current.at is None or now - current.at >= ANSWER_AFTER
