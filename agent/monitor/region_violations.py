"""What is said of a container whose region is not as the agent made it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from agent.driver.driver import Process
from agent.monitor.attribution import OpenRegion
from agent.monitor.violation import LocalPod, Violation, ViolationKind, pids_text
from agent.region.decode import RegionReading
from agent.share import Share
from allocator.catalog.injection import REGION_FILE, REGION_PATH
from allocator.model.untrusted import quote

_MIB: Final = 1024 * 1024
_REMEDY: Final = (
    "the library counts it on others, because CUDA_VISIBLE_DEVICES numbers GPUs anew in each"
    " process; ask for one GPU per container, for whole GPUs, or for mode mig"
)
_UNCOUNTED: Final = (
    "it runs without the interception library, or with a region of its own"
    " (CUDA_DEVICE_MEMORY_SHARED_CACHE), so that only the driver's figures hold it to its limit"
)
_UNHELD: Final = (
    "its launches wait, but CUDA graphs are launched past the library; ask for mode mps or mig"
    " where compute must be limited"
)


def region_violation(share: Share, pods: Mapping[str, LocalPod], text: str) -> Violation:
    """Return the violation of a container whose region *text* is said of."""
    return _violation(ViolationKind.LIMITS, share, pods, note=f"its {text}")


def limits_note(text: str) -> str:
    """Return a note on the limits in the region that the agent made."""
    return f"limits in {REGION_PATH} {text}"


def other_regions_note(regions: Sequence[OpenRegion]) -> str:
    """Return a note on the regions of one container, of which it should have one."""
    names = ", ".join(quote(one.reading.name) for one in regions if one.reading.name != REGION_FILE)
    return f"processes count in further regions beside {REGION_PATH}, limited in sum now: {names}"


def uncounted_violation(
    opened: OpenRegion, pods: Mapping[str, LocalPod], processes: Sequence[Process]
) -> Violation:
    """Return the violation of a container with *processes* that none of its regions counts."""
    gpu = processes[0].gpu
    note = f"uses {gpu} without being counted: {pids_text(processes)}; {_UNCOUNTED}"
    return _violation(ViolationKind.UNCOUNTED, opened.share, pods, note=note, gpu=gpu)


def disk_violation(reading: RegionReading, share: Share, pods: Mapping[str, LocalPod]) -> Violation:
    """Return the violation of a container that let a region grow on the node's disk."""
    excess = reading.excess
    amount = f"{excess} bytes" if excess < _MIB else f"{excess // _MIB} MiB"
    note = f"had {amount} too many in {REGION_PATH}, which is on the node's disk; they were cut off"
    return _violation(ViolationKind.DISK, share, pods, note=note)


def compute_violation(opened: OpenRegion, pods: Mapping[str, LocalPod]) -> Violation:
    """Return the violation of a container that computes on although its launches wait."""
    gpus = ", ".join(sorted(opened.gpus))
    note = f"computes on {gpus} beyond the {opened.cores} % of its entry; {_UNHELD}"
    return _violation(ViolationKind.COMPUTE, opened.share, pods, note=note)


def numbering_violation(
    opened: OpenRegion, pods: Mapping[str, LocalPod], gpus: Collection[str]
) -> Violation:
    """Return the violation of a container that uses *gpus* and counts that on others."""
    first = min(gpus)
    note = f"uses {', '.join(sorted(gpus))}, but {_REMEDY}"
    return _violation(ViolationKind.NUMBERING, opened.share, pods, note=note, gpu=first)


def _violation(
    kind: ViolationKind,
    share: Share,
    pods: Mapping[str, LocalPod],
    *,
    note: str,
    gpu: str | None = None,
) -> Violation:
    owner = share.owner
    ledger_pod = LocalPod(uid=owner.uid, namespace=owner.namespace, name=owner.pod)
    return Violation(
        kind=kind,
        pod=pods.get(owner.uid, ledger_pod),
        container=owner.container,
        gpu=gpu or share.grants[0].gpu,
        note=note,
    )
