"""Unpromised: what runs on the GPUs of a node without an entry in the ledger.

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
from allocator.catalog.vocabularies import FOREIGN, VOLCANO, Vocabulary
from allocator.ledger.ledger import Ledger, annotated_entry
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.request import Mode, Stage
from allocator.model.units import NO_CORES
from allocator.model.untrusted import parse_untrusted_json
from allocator.volcano.device_list import ListedDevice, parse_device_list

ELSEWHERE: Final = "foreign"  # where a pod has its namespace: an instance that is nobody's pod's
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)  # since when is not known, and must not move


def uses_gpus(tenant: NodePod, vocabularies: Collection[Vocabulary]) -> bool:
    """Say whether a container of *tenant* that has started may use a GPU: ours, or another's."""
    return tenant.has_started and any(_is_gpu(name, vocabularies) for name in tenant.requests)


def find_unaccounted(
    document: Mapping[str, object],
    ledger: Ledger,
    *,
    tenants: Iterable[NodePod],
    instances: Iterable[RealisedInstance],
    vocabularies: Collection[Vocabulary],
) -> tuple[tuple[Entry, ...], tuple[NodePod, ...]]:
    """Return what is in use without an entry, and the pods of which nobody knows what they use.

    *document* is *ledger* as it was read; *tenants* are those that :func:`uses_gpus` is true of.
    One that has instances of another's making needs no entry: those are kept free of promises
    anyway.
    """
    foreign = [instance for instance in instances if instance.foreign]
    kept = Counter(instance.gpu for instance in foreign)
    entries: list[Entry] = []
    unknown: list[NodePod] = []
    for tenant in sorted(tenants, key=lambda tenant: tenant.uid):  # the same words each time
        if ledger.entry(tenant.uid) is not None:
            continue
        devices = _listed_devices(tenant, vocabularies)
        found = _annotated_entry(
            document, tenant, parse_untrusted_json(tenant.told) or _shares(devices)
        )
        cut = Counter(d.uuid for part in devices.values() for d in part if d.position)
        if found is not None and found.containers:
            entries.append(found)
        elif cut and cut <= kept:
            kept -= cut
        else:
            unknown.append(tenant)
    entries += map(_foreign_entry, foreign)
    return tuple(sorted(entries, key=lambda entry: entry.uid)), tuple(unknown)


def _is_gpu(name: str, vocabularies: Iterable[Vocabulary]) -> bool:
    return name.startswith(FOREIGN) or any(name in words.resources for words in vocabularies)


def _annotated_entry(document: Mapping[str, object], tenant: NodePod, told: object) -> Entry | None:
    """Read what is *told* of a pod; which of its containers take turns, its spec says."""
    pod = {"namespace": tenant.namespace, "name": tenant.name, "uid": tenant.uid}
    entry = annotated_entry(document, pod, told) if told else None
    if entry is None:
        return None
    stages = {vessel.name: vessel.stage for vessel in tenant.vessels}
    containers = (replace(c, stage=stages.get(c.name, Stage.APP)) for c in entry.containers)
    return replace(entry, containers=tuple(containers))


def _listed_devices(
    tenant: NodePod, vocabularies: Collection[Vocabulary]
) -> Mapping[str, tuple[ListedDevice, ...]]:
    """Return what another scheduler's list gives each container, memory in MiB; or nothing.

    The non-empty parts of the list belong to the containers that request GPUs, in order. A list
    with another number of parts is not of this pod.
    """
    units = (words.memory_factor for words in vocabularies if words.name == VOLCANO.name)
    written, factor = parse_device_list(tenant.volcano), next(units, 1)
    if not written:
        written, factor = parse_device_list(tenant.hami), 1
    names = [v.name for v in tenant.vessels if any(_is_gpu(name, vocabularies) for name in v.asks)]
    if len(names) != len(written):
        return {}
    return {
        name: tuple(ListedDevice(d.uuid, d.memory * factor, d.cores, d.position) for d in part)
        for name, part in zip(names, written, strict=True)
    }


def _shares(devices: Mapping[str, tuple[ListedDevice, ...]]) -> list[Json]:
    """Return what a list says as an assignment tells it; nothing where it names instances."""
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
    """Return what keeps the place of an instance that somebody else made."""
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
        namespace=ELSEWHERE,
        pod=name[:253],
        uid=uid[:64],
        since=_BEGINNING,
        containers=(ContainerGrants(name=ELSEWHERE, grants=(grant,)),),
    )
