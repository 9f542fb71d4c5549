"""Boards of the simulation as devices of the NVML stand-in."""

import re
from typing import Final

from agent.driver.driver import MigMode
from agent.driver.simulated_machine import SimulatedGpu, State
from allocator.catalog.boards import bare_name, model_named
from allocator.mig.profiles import shape_of
from allocator.model.board import Board, Profile
from tests.fakes.nvml.layout import CGpu, CMachine, CProfile

# nvml.h, NVML_GPU_INSTANCE_PROFILE_*: numbers by attributes and compute slices
_NUMBERS: Final = {
    "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6},
    "+me": {1: 0x7, 2: 0x8},
    "+gfx": {1: 0xA, 2: 0xB, 4: 0xC, 3: 0x11},
    "-me": {1: 0xD, 2: 0xE},
    "+me.all": {1: 0xF, 2: 0x10},
}
_DOUBLE_MEMORY: Final = 9
_MEDIA: Final = {"-me": 0, "+me.all": 2}  # 1 is a share
# What an 8-slot driver tries first, by size (NVIDIA MIG User Guide, A100)
_PREFERRED: Final = {1: (6, 4, 5, 0, 1, 2, 3), 2: (4, 0, 2, 6), 4: (4, 0), 8: (0,)}
_ARCHITECTURES: Final = (  # by the name's beginning: number, and compute capability
    (re.compile(r"Tesla [PV]"), (5, (7, 0))),
    (re.compile(r"Tesla T"), (6, (7, 5))),
    (re.compile(r"(RTX )?A\d|PG506|GeForce RTX 30"), (7, (8, 0))),
    (re.compile(r"L\d|RTX 6000 Ada|GeForce RTX 40"), (8, (8, 9))),
    (re.compile(r"G?H\d"), (9, (9, 0))),
    (re.compile(r"G?B\d|RTX PRO|GeForce RTX 50"), (10, (10, 0))),
)


def furnished(state: State) -> CMachine:
    """Return the machine with the GPUs of *state* and their modes; instances are for NVML."""
    machine = CMachine(
        boot=state.boot.encode(),
        driver_version=b"580.95.05",
        nvml_version=b"13.580.95.05",
        cuda_version=13010,
        gpu_count=len(state.gpus),
    )
    places = {running.chip.uuid: index for index, running in enumerate(state.gpus)}
    for index, running in enumerate(state.gpus):
        machine.gpus[index] = _gpu(running, places)
    return machine


def _gpu(running: SimulatedGpu, places: dict[str, int]) -> CGpu:
    chip = running.chip
    model = model_named(chip.model)
    bare = bare_name(chip.model)
    number, capability = next((v for p, v in _ARCHITECTURES if p.match(bare)), (10, (10, 0)))
    domain, bus, device = (int(part, 16) for part in re.split("[:.]", chip.pci)[:3])
    mode = running.mig or MigMode(current=False, pending=False)
    gpu = CGpu(
        uuid=chip.uuid.encode(),
        name=chip.model.encode(),
        memory=chip.memory << 20,
        minor=chip.minor,
        domain=domain,
        bus=bus,
        device=device,
        pci_id=model.pci[0] if model and model.pci else 0,
        architecture=number,
        cc_major=capability[0],
        cc_minor=capability[1],
        numa=-1 if chip.numa is None else chip.numa,
        link_count=len(chip.links),
        mig_capable=running.mig is not None,
        mig_current=mode.current,
        mig_pending=mode.pending,
    )
    for position, link in enumerate(chip.links):
        gpu.links[position] = places[link]
    if chip.board is not None:
        gpu.slots = chip.board.slots
        gpu.profile_count = len(chip.board.profiles)
        for position, profile in enumerate(chip.board.profiles):
            gpu.profiles[position] = _profile(profile, chip.board)
    return gpu


def _profile(profile: Profile, board: Board) -> CProfile:
    shape = shape_of(profile.name)
    if shape is None:
        raise ValueError(f"{profile.name!r} is no profile name")
    number = _NUMBERS[shape.attributes][shape.slices]
    if not shape.attributes and profile not in board.plain:
        number = _DOUBLE_MEMORY
    media = _MEDIA.get(shape.attributes, 1)
    made = CProfile(
        name=profile.name.encode(),
        memory=profile.memory,
        number=number,
        id=profile.id,
        slices=profile.slices,
        size=profile.size,
        limit=profile.limit or 0,
        sms=profile.sms,
        copies=profile.slices,
        decoders=media and profile.slices,
        jpegs=int("+me" in profile.name),
        ofas=int("+me" in profile.name),
        media=media,
        place_count=len(profile.starts),
    )
    tried = _PREFERRED.get(profile.size, ()) if board.slots == 8 else ()
    order = sorted(profile.starts, key=lambda s: tried.index(s) if s in tried else 100 + s)
    for position, start in enumerate(profile.starts):
        made.places[position] = start
        made.preferred[position] = order[position]
    return made
