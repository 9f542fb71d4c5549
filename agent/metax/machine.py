"""Simulated MetaX nodes: the GPUs that a node without GPUs simulates, read from a fleet file.

The format is that of ``allocator/config/fleet_file.py``. An entry whose GPUs are in mode ``sgpu``
or ``native`` is a MetaX node; all of its GPUs are in one mode, as MetaX's own nodes are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.driver.simulated_fleet import own_entry
from agent.metax.link_maps import ZONE_GPUS
from allocator.config.fleet_file import load_fleet, stable_uuid
from allocator.metax.cards import MetaxCard
from allocator.metax.names import GPU, SGPU
from allocator.metax.node_modes import NodeMode
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Problem, Rejected
from allocator.model.request import METAX, Mode
from allocator.model.untrusted import quote

_MODES: Final = {Mode.NATIVE: NodeMode.NATIVE, Mode.SGPU: NodeMode.SGPU}
_RESOURCES: Final = {NodeMode.NATIVE: GPU, NodeMode.SGPU: SGPU}
_MIB: Final = 1024  # in a GiB
_MOST_GIB: Final = 9999  # that the label of a native node can say
_MODEL_TEXT: Final = re.compile(r"[ -~]{1,128}", re.ASCII)
_MODEL_LABEL: Final = re.compile(r"[0-9A-Za-z]([0-9A-Za-z._-]{0,61}[0-9A-Za-z])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaxMachine:
    """The GPUs of one simulated MetaX node."""

    mode: NodeMode
    cards: tuple[MetaxCard, ...]  # at least one; of a native node with one share each

    @property
    def resource(self) -> str:
        """Return the resource that its device plugin serves."""
        return _RESOURCES[self.mode]

    @property
    def other_resource(self) -> str:
        """Return the resource of the other mode, which is never offered beside."""
        (other,) = (name for mode, name in _RESOURCES.items() if mode is not self.mode)
        return other


def metax_machine(text: str, *, node: str) -> MetaxMachine | Rejected | None:
    """Return what *node* simulates by the *text* of a fleet file.

    ``None`` where that is no MetaX node, or where the file is malformed, which the reader of
    NVIDIA's nodes says.
    """
    loaded = load_fleet(text)
    if isinstance(loaded, Rejected):
        return None
    entry = own_entry(loaded.value, node)
    if entry is None or all(gpu.family != METAX for gpu in entry.gpus):
        return None
    problems = tuple(_problems(entry))
    if problems:
        return Rejected(problems)
    return MetaxMachine(
        mode=_MODES[entry.gpus[0].mode],
        cards=tuple(_card(gpu, entry.gpus, node) for gpu in entry.gpus),
    )


def _card(gpu: Gpu, gpus: tuple[Gpu, ...], node: str) -> MetaxCard:
    return MetaxCard(
        uuid=stable_uuid("GPU", f"{node}/{gpu.index}"),
        model=gpu.model,
        shares=gpu.slots,
        memory=gpu.memory,
        healthy=gpu.healthy,
        numa=2 * gpu.index // len(gpus),
        zone=1 + gpu.index // ZONE_GPUS,
    )


def _problems(entry: Node) -> Iterator[Problem]:
    """Yield what keeps *entry* from being a MetaX node."""
    path, modes = f"nodes.{entry.name}", sorted({str(gpu.mode) for gpu in entry.gpus})
    if len(modes) > 1:
        accepted = f"one mode for all GPUs of a MetaX node: {' or '.join(map(str, _MODES))}"
        yield Problem(path=f"{path}.gpus", what=f"modes {', '.join(modes)}", accepted=accepted)
        return
    if any(gpu.grants for gpu in entry.gpus):
        accepted = "no busy GPUs; entries come from binding pods"
        yield Problem(path=f"{path}.busy", what="busy GPUs found", accepted=accepted)
    if any(gpu.foreign for gpu in entry.gpus):
        accepted = "none on a MetaX node, whose plugin does not tell of it"
        yield Problem(path=f"{path}.foreign", what="foreign memory found", accepted=accepted)
    check = _native_problems if entry.gpus[0].mode is Mode.NATIVE else _shared_problems
    yield from check(path, entry.gpus)


def _shared_problems(path: str, gpus: tuple[Gpu, ...]) -> Iterator[Problem]:
    for gpu in gpus:
        if _MODEL_TEXT.fullmatch(gpu.model) is None:
            accepted = "1 to 128 printable ASCII characters"
            yield Problem(path=f"{path}.model", what=quote(gpu.model), accepted=accepted)
            return


def _native_problems(path: str, gpus: tuple[Gpu, ...]) -> Iterator[Problem]:
    """Yield what the labels of a native node could not say of its GPUs."""
    first = gpus[0]
    if any((gpu.model, gpu.memory) != (first.model, first.memory) for gpu in gpus):
        accepted = "one model and memory for all GPUs in mode native, which has one label for each"
        yield Problem(path=f"{path}.gpus", what="GPUs of several kinds", accepted=accepted)
    if _MODEL_LABEL.fullmatch(first.model) is None:
        accepted = "in mode native the value of a label, such as C500"
        yield Problem(path=f"{path}.model", what=quote(first.model), accepted=accepted)
    if first.memory % _MIB or first.memory > _MOST_GIB * _MIB:
        accepted = f"in mode native a multiple of {_MIB} MiB up to {_MOST_GIB} GiB"
        yield Problem(path=f"{path}.memory", what=f"{first.memory} MiB", accepted=accepted)
    if slots := [gpu.slots for gpu in gpus if gpu.slots != 1]:
        accepted = "1 in mode native, where nobody shares a GPU"
        yield Problem(path=f"{path}.slots", what=f"{slots[0]}", accepted=accepted)
