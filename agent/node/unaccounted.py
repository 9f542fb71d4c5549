"""Unaccounted use: what runs on the GPUs of a node without an entry in the ledger.

The ledger may have been lost, another plugin may have served the node before, or a pod came past
admission. What such a pod uses is reported, so that it is promised to no other pod. Where no list
says which GPUs those are, the pod is charged for what it asks, on as few GPUs as it can have
reached: those on which it has processes, else any with room. So it takes no more from others.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from agent.node.pods import NodePod, PodContainer
from agent.node.status import Hardware, Json, RealisedInstance
from allocator.catalog.vocabularies import (
    OTHER_WORDS,
    VOLCANO,
    Vocabulary,
    foreign_prefixes,
    unserved_vocabularies,
)
from allocator.ledger.ledger import Ledger, annotated_entry
from allocator.ledger.schema import (
    FOREIGN_NAMESPACE,
    MOST_UNPROMISED,
    MOST_UNPROMISED_BYTES,
    spec_of,
)
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu
from allocator.model.request import MOST_CONTAINERS, ContainerRequest, Mode, Stage
from allocator.model.units import NO_CORES, WHOLE_GPU, CorePercent, MiB
from allocator.model.untrusted import parse_untrusted_json
from allocator.model.usage import peak_grants
from allocator.volcano.device_list import ListedDevice, parse_device_list

_UNKNOWN_SINCE: Final = datetime(1970, 1, 1, tzinfo=UTC)  # a fixed time, as the real one is unknown
# Resources of NVIDIA's plugin that name one MIG instance, which exists and is reserved already.
_MIG_PREFIX: Final = "nvidia.com/mig-"
_ANY_GPU: Final = MiB(1 << 20)  # a memory by which requests are compared before a GPU is chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """What is known on a node of the use of its GPUs."""

    pods: Iterable[NodePod]  # those for which :func:`uses_gpus` is true
    gpus: Sequence[Gpu]  # that are served
    hardware: Hardware
    vocabularies: Collection[Vocabulary]


@dataclass(frozen=True, slots=True)
class AskedShare:
    """What one container asks for, whoever was to give it, and the mode of such a share."""

    request: ContainerRequest
    mode: Mode


def uses_gpus(pod: NodePod, vocabularies: Collection[Vocabulary]) -> bool:
    """Say whether *pod* has started and requests GPUs, from us or from another plugin."""
    return pod.has_started and any(_is_gpu(name, vocabularies) for name in pod.requests)


def find_unaccounted(
    document: Mapping[str, object], ledger: Ledger, use: NodeUse
) -> tuple[Entry, ...]:
    """Return entries for what is used without one; *document* is *ledger* as it was read.

    A pod on foreign instances needs no entry, because those are never promised.
    """
    foreign = [instance for instance in use.hardware.instances if instance.foreign]
    unclaimed = Counter(instance.gpu for instance in foreign)
    entries = list(map(_foreign_entry, foreign))
    strangers: list[NodePod] = []
    for pod in sorted(use.pods, key=lambda pod: pod.uid):  # a stable order
        if ledger.entry(pod.uid) is not None:
            continue
        devices = _listed_devices(pod, use.vocabularies)
        told = parse_untrusted_json(pod.assignment) or _as_assignment(devices)
        entry = _annotated_entry(document, pod, told)
        bounded = entry and _bounded_entry(entry, asked_shares(pod, use.vocabularies), use.gpus)
        mig_devices = Counter(d.uuid for part in devices.values() for d in part if d.position)
        if bounded:
            entries.append(bounded)
        elif mig_devices and mig_devices <= unclaimed:
            unclaimed -= mig_devices
        else:
            strangers.append(pod)
    entries += _charges(strangers, _Room(use, (*ledger.entries, *entries)), ledger)
    return tuple(sorted(_reportable(entries), key=lambda entry: entry.uid))


def _reportable(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield as many of *entries* as a status can hold: with more, nothing would be reported.

    Tenants decide how many containers their pods have, and how long those are named. Where all
    together would be too long, each pod is told as one container, and the longest ones not at all.
    """
    left = MOST_UNPROMISED_BYTES
    if sum(map(_length, entries)) > left:
        entries = sorted(map(_folded, entries), key=_length)
    for entry in entries[:MOST_UNPROMISED]:
        left -= _length(entry)
        if left >= 0:
            yield entry


def _length(entry: Entry) -> int:
    """Return the bytes of *entry* in a status."""
    return len(msgspec.json.encode(spec_of((entry,))["entries"]))


def _folded(entry: Entry) -> Entry:
    """Return *entry* with all that its containers hold at a time in one of them, by GPU."""
    grants: list[Grant] = []
    shared: dict[tuple[str, Mode], Grant] = {}
    for grant in peak_grants(entry.containers):
        before = shared.get((grant.gpu, grant.mode))
        if grant.placed is not None:
            grants.append(grant)
        elif before is None:
            shared[grant.gpu, grant.mode] = grant
        else:
            memory = MiB(before.memory + grant.memory)
            cores = CorePercent(min(before.cores + grant.cores, WHOLE_GPU))
            shared[grant.gpu, grant.mode] = _grant(
                grant.gpu, grant.mode, memory=memory, cores=cores
            )
    together = ContainerGrants(name=entry.containers[0].name, grants=(*grants, *shared.values()))
    return replace(entry, containers=(together,))


def asked_shares(pod: NodePod, vocabularies: Collection[Vocabulary]) -> tuple[AskedShare, ...]:
    """Return what the containers of *pod* ask for, of as many as one entry can hold."""
    shares = (_asked_share(container, vocabularies) for container in pod.containers)
    return tuple(share for share in shares if share is not None)[:MOST_CONTAINERS]


def _asked_share(
    container: PodContainer, vocabularies: Collection[Vocabulary]
) -> AskedShare | None:
    """Return what *container* asks for; the larger request where it asks in several words."""
    names = {name for name in container.resources if _is_gpu(name, vocabularies)}
    names = {name for name in names if not name.startswith(_MIG_PREFIX)}
    if not names:
        return None
    served = {words.name for words in vocabularies}
    others = (words for words in OTHER_WORDS if words.name not in served)
    known = (*vocabularies, *unserved_vocabularies(vocabularies), *others)
    spoken = [words for words in known if not names.isdisjoint(words.resources)]
    # Admission adds the slot to a request in other words than Volcano's, where it says nothing.
    slots = {words.slot for words in vocabularies}
    precise = [words for words in spoken if not (names - slots).isdisjoint(words.resources)]
    shares = [_share_in(words, container) for words in precise or spoken]
    whole = ContainerRequest(name=container.name, index=0, stage=container.stage, count=1)
    return max(
        shares or [AskedShare(whole, Mode.HAMI_CORE)],
        key=lambda share: share.request.count * share.request.memory_on(_ANY_GPU),
    )


def _share_in(words: Vocabulary, container: PodContainer) -> AskedShare:
    count, memory, percent, cores = (
        container.resources.get(name or "", 0)
        for name in (words.count, words.memory, words.percent, words.cores)
    )
    most = int(WHOLE_GPU)
    request = ContainerRequest(
        name=container.name,
        index=0,
        stage=container.stage,
        count=max(1, count),
        memory=MiB(memory * words.memory_factor) if memory else None,
        percent=min(percent, most) if percent and not memory else None,
        cores=CorePercent(most if words.whole and count else min(cores, most)),
    )
    return AskedShare(request, words.mode or Mode.HAMI_CORE)


def _bounded_entry(entry: Entry, shares: Iterable[AskedShare], gpus: Iterable[Gpu]) -> Entry | None:
    """Return *entry*, which rests on annotations, with no more than the pod asks for.

    Anybody may have written them. ``None`` where they name other containers, or more GPUs.
    """
    asked = {share.request.name: share.request for share in shares}
    memory = {gpu.uuid: gpu.memory for gpu in gpus}
    if not entry.containers or any(
        held.name not in asked or len(held.grants) > asked[held.name].count
        for held in entry.containers
    ):
        return None

    def bounded(grant: Grant, request: ContainerRequest) -> Grant:
        if grant.placed is not None:
            return grant
        most = request.memory_on(memory.get(grant.gpu, grant.memory))
        whole = request.memory is None and request.percent is None
        cores = grant.cores if whole else min(grant.cores, request.cores)
        return _grant(grant.gpu, grant.mode, memory=min(grant.memory, most), cores=cores)

    containers = (
        replace(held, grants=tuple(bounded(grant, asked[held.name]) for grant in held.grants))
        for held in entry.containers
    )
    return replace(entry, containers=tuple(containers))


def _grant(gpu: str, mode: Mode, *, memory: MiB, cores: CorePercent) -> Grant:
    return Grant(gpu=gpu, mode=mode, memory=memory, cores=cores)


class _Room:
    """What is free on the GPUs of a node while pods are charged, one after the other."""

    def __init__(self, use: NodeUse, entries: Iterable[Entry]) -> None:
        self.use = use
        self.gpus = tuple(gpu for gpu in use.gpus if gpu.mode is not Mode.MIG)
        self._free = {gpu.uuid: gpu.memory - gpu.foreign for gpu in use.gpus}
        self._placed: set[tuple[str, Placement]] = set()
        for entry in entries:
            self.take(entry.containers)

    def take(self, containers: Sequence[ContainerGrants]) -> None:
        """Count what a pod holds as taken."""
        for grant in peak_grants(containers):
            self._free[grant.gpu] = self._free.get(grant.gpu, 0) - grant.memory
            if grant.placed is not None:
                self._placed.add((grant.gpu, grant.placed))

    def best_gpus(
        self, share: AskedShare, *wanted: Collection[str], own: Mapping[str, int]
    ) -> list[Gpu]:
        """Return the GPUs for *share*: those *wanted* first, then the fullest that have room.

        *own* is the memory that other containers of the pod take, by GPU.
        """

        def rank(gpu: Gpu) -> tuple[object, ...]:
            free = self._free[gpu.uuid] - own.get(gpu.uuid, 0)
            fits = free >= share.request.memory_on(gpu.memory)
            preferred = [gpu.uuid not in uuids for uuids in wanted]
            others = not gpu.healthy, not fits, gpu.uuid not in own, free if fits else -free
            return *preferred, *others, gpu.index

        return sorted(self.gpus, key=rank)[: share.request.count]

    def idle_instances(self, uuids: Collection[str]) -> Iterator[Grant]:
        """Yield grants of the MIG instances *uuids* that nobody holds and that are not foreign."""
        for instance in self.use.hardware.instances:
            placed = instance.placed
            held = instance.foreign or (instance.gpu, placed) in self._placed
            if instance.uuid in uuids and not held:
                memory = placed.profile.memory
                grant = _grant(instance.gpu, Mode.MIG, memory=memory, cores=NO_CORES)
                yield msgspec.structs.replace(grant, placed=placed)


def _charges(strangers: Sequence[NodePod], room: _Room, ledger: Ledger) -> Iterator[Entry]:
    """Yield charges of pods of which nobody knows what they use.

    A charge stays where the last status has it, so those are counted before new ones are placed.
    """
    before = {entry.uid: _gpus_of(entry.containers) for entry in ledger.unpromised}
    for pod in sorted(strangers, key=lambda pod: pod.uid not in before):
        containers = tuple(_charged(pod, room, before=before.get(pod.uid, frozenset())))
        if containers:
            room.take(containers)
            yield Entry(
                namespace=pod.namespace,
                pod=pod.name,
                uid=pod.uid,
                since=_UNKNOWN_SINCE,
                containers=containers,
            )


def _charged(pod: NodePod, room: _Room, *, before: Collection[str]) -> Iterator[ContainerGrants]:
    """Yield what each container of *pod* is charged for.

    On a GPU in MIG mode it can have reached an instance only, so there it is charged for those on
    which it has processes.
    """
    reached = room.use.hardware.reached.get(pod.uid, frozenset())
    if instances := tuple(room.idle_instances(reached)):
        yield ContainerGrants(name=pod.containers[0].name, grants=instances)
    if reached and reached.isdisjoint(gpu.uuid for gpu in room.gpus):
        return
    own: Counter[str] = Counter()  # memory by GPU; init containers end before others start
    for share in asked_shares(pod, room.use.vocabularies):
        request = share.request
        grants = tuple(
            _grant(
                gpu.uuid,
                share.mode,
                memory=min(request.memory_on(gpu.memory), gpu.memory),
                cores=request.cores,
            )
            for gpu in room.best_gpus(share, reached, before, own=own)
        )
        if grants:
            lasts = request.stage is not Stage.INIT
            own.update({grant.gpu: grant.memory if lasts else 0 for grant in grants})
            yield ContainerGrants(name=request.name, grants=grants, stage=request.stage)


def _gpus_of(containers: Iterable[ContainerGrants]) -> frozenset[str]:
    return frozenset(grant.gpu for held in containers for grant in held.grants)


def _is_gpu(name: str, vocabularies: Collection[Vocabulary]) -> bool:
    return name.startswith(foreign_prefixes(vocabularies)) or any(
        name in vocabulary.resources for vocabulary in vocabularies
    )


def _annotated_entry(
    document: Mapping[str, object], pod: NodePod, assignment: object
) -> Entry | None:
    """Return the entry that *assignment* describes; stages come from the pod's spec."""
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    entry = annotated_entry(document, metadata, assignment) if assignment else None
    if entry is None:
        return None
    stages = {container.name: container.stage for container in pod.containers}
    containers = (replace(c, stage=stages.get(c.name, Stage.APP)) for c in entry.containers)
    return replace(entry, containers=tuple(containers))


def _listed_devices(
    pod: NodePod, vocabularies: Collection[Vocabulary]
) -> Mapping[str, tuple[ListedDevice, ...]]:
    """Return the devices of each container by another scheduler's list, memory in MiB; or nothing.

    The non-empty parts of the list belong to the containers that request GPUs, in order. A list
    with another number of parts is not of this pod.
    """
    units = (words.memory_factor for words in vocabularies if words.name == VOLCANO.name)
    listed, factor = parse_device_list(pod.volcano_devices), next(units, 1)
    if not listed:
        listed, factor = parse_device_list(pod.hami_devices), 1
    names = [
        v.name for v in pod.containers if any(_is_gpu(name, vocabularies) for name in v.resources)
    ]
    if len(names) != len(listed):
        return {}
    return {
        name: tuple(ListedDevice(d.uuid, d.memory * factor, d.cores, d.position) for d in part)
        for name, part in zip(names, listed, strict=True)
    }


def _as_assignment(devices: Mapping[str, tuple[ListedDevice, ...]]) -> list[Json]:
    """Return the devices of a list as an assignment; nothing if it names MIG instances."""
    if any(device.position for part in devices.values() for device in part):
        return []
    return [
        {
            "name": name,
            "devices": [
                {
                    "gpu": device.uuid,
                    "mode": Mode.HAMI_CORE,
                    "memoryMiB": device.memory,
                    "cores": device.cores,
                }
                for device in part
            ],
        }
        for name, part in devices.items()
    ]


def _foreign_entry(instance: RealisedInstance) -> Entry:
    """Return the entry that keeps a foreign instance from being promised."""
    placed = instance.placed
    grant = Grant(
        gpu=instance.gpu,
        mode=Mode.MIG,
        memory=placed.profile.memory,
        cores=NO_CORES,
        placed=placed,
    )
    name = f"{instance.gpu}-{placed.profile.name}-{placed.start}".lower()
    uid = instance.uuid or f"{instance.gpu[:48]}-{placed.profile.id}-{placed.start}"
    return Entry(
        namespace=FOREIGN_NAMESPACE,
        pod=name[:253],
        uid=uid[:64],
        since=_UNKNOWN_SINCE,
        containers=(ContainerGrants(name=FOREIGN_NAMESPACE, grants=(grant,)),),
    )
