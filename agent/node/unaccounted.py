"""Unaccounted use: what runs on the GPUs of a node without an entry in the ledger.

The ledger may have been lost, or another plugin may have served the node before. What such pods use
is reported, so that it is given to no other pod; where it is unknown, that is reported.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from agent.node.pods import NodePod
from agent.node.status import Json, RealisedInstance
from allocator.catalog.vocabularies import VOLCANO, Vocabulary, foreign_prefixes
from allocator.ledger.ledger import Ledger, annotated_entry
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.request import Mode, Stage
from allocator.model.units import NO_CORES
from allocator.model.untrusted import parse_untrusted_json
from allocator.volcano.device_list import ListedDevice, parse_device_list

# The namespace, in place of a pod's, of entries for instances that belong to no pod.
FOREIGN_NAMESPACE: Final = "foreign"
_UNKNOWN_SINCE: Final = datetime(1970, 1, 1, tzinfo=UTC)  # a fixed time, as the real one is unknown


def uses_gpus(pod: NodePod, vocabularies: Collection[Vocabulary]) -> bool:
    """Say whether *pod* has started and requests GPUs, from us or from another plugin."""
    return pod.has_started and any(_is_gpu(name, vocabularies) for name in pod.requests)


def find_unaccounted(
    document: Mapping[str, object],
    ledger: Ledger,
    *,
    pods: Iterable[NodePod],
    instances: Iterable[RealisedInstance],
    vocabularies: Collection[Vocabulary],
) -> tuple[tuple[Entry, ...], tuple[NodePod, ...]]:
    """Return entries for what is used without one, and the pods whose use is unknown.

    *document* is *ledger* as it was read; *pods* are those for which :func:`uses_gpus` is true. A
    pod on foreign instances needs no entry, because those are never promised.
    """
    foreign = [instance for instance in instances if instance.foreign]
    unclaimed = Counter(instance.gpu for instance in foreign)
    entries: list[Entry] = []
    unknown: list[NodePod] = []
    for pod in sorted(pods, key=lambda pod: pod.uid):  # a stable order
        if ledger.entry(pod.uid) is not None:
            continue
        devices = _listed_devices(pod, vocabularies)
        entry = _annotated_entry(
            document, pod, parse_untrusted_json(pod.assignment) or _as_assignment(devices)
        )
        mig_devices = Counter(d.uuid for part in devices.values() for d in part if d.position)
        if entry is not None and entry.containers:
            entries.append(entry)
        elif mig_devices and mig_devices <= unclaimed:
            unclaimed -= mig_devices
        else:
            unknown.append(pod)
    entries += map(_foreign_entry, foreign)
    return tuple(sorted(entries, key=lambda entry: entry.uid)), tuple(unknown)


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
