"""The register for HAMi's scheduler of a node that our agent serves.

HAMi's scheduler adds up the lists of devices on pods. What it cannot see there is taken off the
GPU: foreign memory, entries whose pod has no such list, and ended pods that are still on their GPU.
"""

import hashlib
from collections.abc import Collection, Iterable

from allocator.hami.node_marks import HamiMarks
from allocator.hami.register import RegisteredDevice, encode_hami_register, registered_device
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Grant
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU
from allocator.model.usage import peak_grants


def hami_register_of(ledger: Ledger, counted: Collection[str]) -> str:
    """Return the annotation for the node of *ledger*; *counted* are the uids that HAMi counts.

    Empty where no GPU can be offered. GPUs in mode MIG are left out: HAMi would reserve instances
    by its own rules. Those of a closed node stay listed as unhealthy.
    """
    entries = (*ledger.entries, *ledger.unpromised)
    hidden = [
        grant
        for entry in entries
        if entry.uid not in counted
        for grant in peak_grants(entry.containers)
    ]
    gpus = sorted(ledger.node.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
    shared = [gpu for gpu in gpus if gpu.mode is Mode.HAMI_CORE]
    devices = [_device(gpu, hidden, closed=bool(ledger.closed)) for gpu in shared]
    return encode_hami_register(devices) if devices else ""


def _device(gpu: Gpu, hidden: Iterable[Grant], *, closed: bool) -> RegisteredDevice:
    grants = [grant for grant in hidden if grant.gpu == gpu.uuid]
    memory = gpu.memory - gpu.foreign - sum(grant.memory for grant in grants)
    cores = WHOLE_GPU - sum(grant.cores for grant in grants)
    usable = not closed and gpu.healthy and memory > 0 and cores > 0
    return registered_device(
        gpu,
        count=max(0, gpu.slots - len(grants)),
        memory=max(1, memory),
        cores=max(0, cores),
        healthy=usable,
    )


def register_digest(text: str) -> str:
    """Return what is noted beside a register of ours, so that another's is told apart."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16] if text else ""


def has_foreign_register(marks: HamiMarks) -> bool:
    """Say whether somebody else than we wrote the register of a node."""
    return bool(marks.register) and marks.digest != register_digest(marks.register)
