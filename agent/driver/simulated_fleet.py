"""Simulated fleets: the GPUs that a node without GPUs simulates, read from a fleet file.

The format is that of ``allocator/config/fleet_file.py``, without ``busy``, because entries come
from the ledger. A node simulates the entry of its name, or the one called ``*``. GPUs in mode
``mig`` have MIG mode on, ``idle`` instances exist from the start, ``foreign`` memory belongs to a
process outside every pod, and an ``unhealthy`` GPU reports a critical error.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from agent.driver.driver import Device, MigMode, Process
from agent.driver.simulated_machine import (
    DriverRefusal,
    State,
    change_gpu,
    create_compute,
    create_instance,
    new_machine,
)
from allocator.catalog.boards import Model, bare_name, model_named, words_of
from allocator.config.fleet_file import load_fleet, stable_uuid
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Loaded, Problem, Rejected
from allocator.model.request import Mode

ANY: Final = "*"
_FIRST_PID: Final = 2**22 + 1  # above what Linux numbers processes with
_CAPABILITIES: Final = (  # by the beginning of a model's name
    (re.compile(r"Tesla [PV]"), (7, 0)),
    (re.compile(r"Tesla T"), (7, 5)),
    (re.compile(r"(RTX )?A\d|PG506|GeForce RTX 30"), (8, 0)),
    (re.compile(r"L\d|RTX 6000 Ada|GeForce RTX 40"), (8, 9)),
    (re.compile(r"G?H\d"), (9, 0)),
)
_NEWEST: Final = (10, 0)
_UP_TO_AMPERE: Final = re.compile(r"Tesla |(RTX )?A\d|PG506|GeForce RTX 30")


def simulated_node(text: str, *, node: str, boot: str) -> Loaded[State] | Rejected:
    """Return the machine of *node*, booted as *boot*, from the *text* of a fleet file."""
    loaded = load_fleet(text)
    if isinstance(loaded, Rejected):
        return loaded
    entry = own_entry(loaded.value, node)
    names = tuple(each.name for each in loaded.value)
    problem = _busy_problem(entry) if entry else _no_entry_problem(node, names)
    if problem or entry is None:
        return Rejected((problem,) if problem else ())
    state = new_machine([_device_of(gpu, entry.gpus, node) for gpu in entry.gpus], boot)
    for gpu in entry.gpus:
        populated = _populate(state, gpu, stable_uuid("GPU", f"{node}/{gpu.index}"))
        if isinstance(populated, DriverRefusal):
            path = f"nodes.{entry.name}.idle"
            accepted = "instances that fit on the GPU together"
            return Rejected((Problem(path=path, what=populated.text, accepted=accepted),))
        state = populated
    return Loaded(value=state, warnings=loaded.warnings)


def own_entry(entries: Iterable[Node], node: str) -> Node | None:
    """Return the entry that *node* simulates: the one of its name, or the one for all others."""
    named = {each.name: each for each in entries}
    return named.get(node) or named.get(ANY)


def simulated_device(model: Model, *, node: str, index: int, mig: bool = False) -> Device:
    """Return the GPU that *node* has at *index*, numbered as on a typical machine."""
    return Device(
        uuid=stable_uuid("GPU", f"{node}/{index}"),
        index=index,
        minor=index,
        pci=f"0000:{1 + 3 * index:02x}:00.0",  # distinct for the 64 GPUs a node may have
        model=model.name,
        memory=model.memory,
        ampere_or_older=_UP_TO_AMPERE.match(bare_name(model.name)) is not None,
        board=model.board,
        capability=next((v for p, v in _CAPABILITIES if p.match(bare_name(model.name))), _NEWEST),
        mig=MigMode(current=mig, pending=mig) if model.board else None,
    )


def _no_entry_problem(node: str, names: Sequence[str]) -> Problem:
    return Problem(
        path="nodes",
        what=f"no entry for node {node!r}",
        accepted=f"an entry of that name, or {ANY!r}; the file has {', '.join(names[:5])}",
    )


def _busy_problem(node: Node) -> Problem | None:
    """Return the problem of an entry with ``busy`` GPUs, which describe no hardware."""
    if any(gpu.grants for gpu in node.gpus):
        accepted = "idle or foreign; entries come from binding pods"
        return Problem(path=f"nodes.{node.name}.busy", what="busy GPUs found", accepted=accepted)
    return None


def _device_of(gpu: Gpu, gpus: Sequence[Gpu], node: str) -> Device:
    model = model_named(gpu.model) or Model(name=gpu.model, memory=gpu.memory)
    device = simulated_device(model, node=node, index=gpu.index, mig=gpu.mode is Mode.MIG)
    switched = _on_a_switch(model)
    return replace(
        device,
        memory=gpu.memory,
        numa=2 * gpu.index // len(gpus),
        links=tuple(
            stable_uuid("GPU", f"{node}/{other.index}")
            for other in gpus
            if switched and other.model == gpu.model and other.index != gpu.index
        ),
    )


def _on_a_switch(model: Model) -> bool:
    """Say whether all GPUs of this product in a machine are linked with one another."""
    return any(word.startswith("SXM") for word in words_of(model.name) | model.also)


def _populate(state: State, gpu: Gpu, uuid: str) -> State | DriverRefusal:
    for placed in gpu.instances:
        created = create_instance(state, uuid, profile=placed.profile.id, start=placed.start)
        if isinstance(created, DriverRefusal):  # media engines, which a fleet file does not count
            return created
        completed = create_compute(created.state, uuid, created.instance.id)
        if isinstance(completed, DriverRefusal):
            return completed
        state = completed.state
    process = Process(pid=_FIRST_PID + gpu.index, gpu=uuid, memory=gpu.foreign)
    held = (process,) if gpu.foreign else ()
    return change_gpu(state, uuid, lambda g: replace(g, processes=held, faulty=not gpu.healthy))
