"""MIG boards for tests: simulated chips, and random layouts on them, in all kinds of hands."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from agent.driver import simulated_machine
from agent.driver.driver import Instance
from agent.driver.simulated_machine import Created, State
from agent.mig.instance_state import GpuSituation, place_of
from agent.mig.journal import Mark, PlacementKey
from allocator.model.board import Board, Placement
from tests.builders.model import A30, A100_40, H100, PRO_6000, board
from tests.fakes.driver import machine

PRODUCTS: Final = (A100_40, A30, H100, PRO_6000)
GPU: Final = machine(A100_40).gpus[0].chip.uuid  # of the first one, whatever its model


def placements(shapes: Board) -> list[Placement]:
    """List every place on a board but those that take all media engines: no slots say those."""
    return [
        Placement(profile, start)
        for profile in shapes.profiles
        if not profile.name.endswith("me.all")
        for start in profile.starts
    ]


def made(state: State, gpu: str, placed: Placement, *, whole: bool = True) -> State | None:
    """Return *state* with an instance more, ``None`` where there is no room."""
    created = simulated_machine.create_instance(
        state, gpu, profile=placed.profile.id, start=placed.start
    )
    if isinstance(created, Created) and whole:
        created = simulated_machine.create_compute(created.state, gpu, created.instance.id)
    return created.state if isinstance(created, Created) else None


def on(state: State, gpu: str = GPU) -> tuple[Instance, ...]:
    gpu_state = simulated_machine.find_gpu(state, gpu)
    assert not isinstance(gpu_state, simulated_machine.DriverRefusal)
    return gpu_state.instances


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One GPU, and how its agent finds it."""

    state: State
    situation: GpuSituation


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Draw a GPU with instances of ours and others', whole and not, in use and not."""
    product = draw(st.sampled_from(PRODUCTS))
    places = placements(board(product))
    state = machine(product)
    for placed in draw(st.lists(st.sampled_from(places), min_size=1, max_size=7)):
        state = made(state, GPU, placed, whole=draw(st.integers(0, 5)) > 0) or state
    marks: dict[PlacementKey, Mark] = {}
    used: dict[str, tuple[int, ...]] = {}
    held: set[Placement] = set()
    for instance in on(state):
        kind = draw(st.sampled_from(["ours"] * 5 + ["half", "unknown", "other", "foreign"]))
        mark = _mark(kind, instance)
        if mark is not None:
            marks[place_of(instance)] = mark
        if instance.uuid is not None and draw(st.integers(0, 3)) == 0:
            used[instance.uuid] = (4242,)
        if draw(st.integers(0, 5)) == 0:
            held |= {p for p in places if (p.profile.id, p.start) == _at(instance)}
    situation = GpuSituation(
        board=board(product),
        present=on(state),
        marks=marks,
        pids_by_instance=used,
        promised=frozenset(apart(draw(st.lists(st.sampled_from(places), min_size=1, max_size=6)))),
        held=frozenset(held),
    )
    return Scene(state=state, situation=situation)


def _mark(kind: str, instance: Instance) -> Mark | None:
    match kind:
        case "ours":
            return Mark(pending=instance.uuid is None, uuid=instance.uuid)
        case "half":
            return Mark(pending=True, uuid=instance.uuid)
        case "unknown":
            return Mark(pending=True)
        case "other":
            return Mark(pending=False, uuid="MIG-of-another")
        case _:
            return None


def _at(instance: Instance) -> tuple[int, int]:
    return instance.profile, instance.start


def apart(wanted: Sequence[Placement]) -> Collection[Placement]:
    """Return those of *wanted* that a ledger promises together: no slot and no limit twice."""
    kept: list[Placement] = []
    for placed in wanted:
        alike = sum(one.profile == placed.profile for one in kept)
        limit = placed.profile.limit
        if limit is not None and alike >= limit:
            continue
        if not any(one.mask & placed.mask for one in kept):
            kept.append(placed)
    return kept
