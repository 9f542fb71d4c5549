"""HAMi's register of a Node, ``hami.io/node-nvidia-register``: JSON, one object per GPU.

HAMi 2.8 and newer write it so. All keys are optional there, and a missing ``health`` means that
the GPU is not healthy. The older text form is not read: no scheduler since 2.8 does.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from allocator.catalog.hami_keys import REGISTER_ANNOTATION
from allocator.ledger.schema import DEVICE_ID, MOST_GPUS, PRINTABLE
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Problem
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.model.untrusted import escaped, quote

_MOST_TEXT: Final = 256 * 1024  # characters; all annotations of an object together
_LARGEST: Final = 2**31 - 1
_ID: Final = re.compile(DEVICE_ID, re.ASCII)
_PLAIN: Final = re.compile(PRINTABLE)
_LONGEST_TYPE: Final = 128  # characters
_TYPE_PREFIX: Final = "NVIDIA-"
_REMEDY: Final = "set operatingmode hami-core for the node in HAMi's node configuration"
_MIG: Final = f"only HAMi's scheduler can reserve its instances; {_REMEDY}"
_MODES: Final = frozenset(map(str, Mode))
_Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class RegisteredDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as HAMi's plugin registers it; unknown keys are ignored."""

    id: str = ""
    index: _Count = 0
    count: _Count = 0  # containers that may share it
    devmem: _Count = 0  # MiB, with HAMi's deviceMemoryScaling applied
    devcore: _Count = 0  # percent, with HAMi's deviceCoreScaling applied
    type: str = ""
    numa: Annotated[int, msgspec.Meta(ge=-1, le=_LARGEST)] = 0
    mode: str = str(Mode.HAMI_CORE)
    health: bool = False


_DEVICES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_DEVICE: Final = msgspec.json.Decoder(RegisteredDevice)


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiNode:
    """A node as HAMi's register describes it, without grants, and what was wrong with that."""

    node: Node
    problems: tuple[Problem, ...] = ()
    closed: str = ""  # why none of its GPUs may be given out, if so


def node_from_hami_register(name: str, text: str) -> HamiNode:
    """Build a node from its annotation.

    A malformed record does not spoil the others, but a node with one is not fresh: no pod is
    refused because of it. A GPU in another mode than hami-core takes no pods.
    """
    raws, problems = _records(text)
    gpus: dict[str, Gpu] = {}
    modes: set[str] = set()
    for number, raw in enumerate(raws):
        device = _device(number, raw, problems)
        if device is None:
            continue
        if device.id in gpus:
            problems.append(_problem(number, f"{quote(device.id)} twice", "each GPU once"))
        else:
            gpus[device.id] = _gpu(device)
            modes.add(device.mode)
    fresh = not problems
    problems += _mode_problems(raws)
    return HamiNode(
        node=Node(name=name, gpus=tuple(gpus.values()), fresh=fresh),
        problems=tuple(problems),
        closed=_closed(modes),
    )


def _closed(modes: Collection[str]) -> str:
    """Return why a node whose GPUs are in *modes* gives out none of them, if so."""
    if not modes or Mode.HAMI_CORE in modes:
        return ""
    known = sorted(mode for mode in modes if mode in _MODES)
    where = f"mode {known[0]}" if known else f"no mode {Mode.HAMI_CORE}"
    return f"its GPUs are in {where}, in which only HAMi's scheduler can give them out; {_REMEDY}"


def _records(text: str) -> tuple[list[msgspec.Raw], list[Problem]]:
    """Return the records as JSON, and the problems with the annotation as a whole."""
    if not text:
        return [], []
    if len(text) > _MOST_TEXT:
        what, accepted = f"{len(text)} characters", f"at most {_MOST_TEXT}"
        return [], [Problem(path=REGISTER_ANNOTATION, what=what, accepted=accepted)]
    try:
        raws = _DEVICES.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        what = f"{quote(text)} is no JSON list: {escaped(str(error), 128)}"
        accepted = "a list of GPUs, as HAMi 2.8 and newer write it"
        return [], [Problem(path=REGISTER_ANNOTATION, what=what, accepted=accepted)]
    if len(raws) <= MOST_GPUS:
        return raws, []
    what, accepted = f"{len(raws)} GPUs", f"at most {MOST_GPUS}"
    problem = Problem(path=REGISTER_ANNOTATION, what=what, accepted=accepted)
    return raws[:MOST_GPUS], [problem]


def _device(number: int, raw: msgspec.Raw, problems: list[Problem]) -> RegisteredDevice | None:
    """Return record *number*, or note in *problems* what is wrong with it."""
    try:
        device = _DEVICE.decode(raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        what = f"{quote(bytes(raw).decode(errors='replace'))}: {escaped(str(error), 128)}"
        problems.append(_problem(number, what, "a GPU as HAMi registers it"))
        return None
    if _ID.fullmatch(device.id) is None:
        problems.append(_problem(number, f"id {quote(device.id)}", "the UUID of a GPU"))
    elif not device.devmem:
        problems.append(_problem(number, "devmem 0", f"1 to {_LARGEST} MiB"))
    elif len(device.type) > _LONGEST_TYPE or _PLAIN.search(device.type) is None:
        problems.append(_problem(number, f"type {quote(device.type)}", "a product name"))
    else:
        return device
    return None


def _gpu(device: RegisteredDevice) -> Gpu:
    """Return the GPU of a record; HAMi adds its prefix to names without the word NVIDIA only."""
    return Gpu(
        uuid=device.id,
        index=device.index,
        model=device.type.removeprefix(_TYPE_PREFIX),
        memory=MiB(device.devmem),
        mode=Mode.HAMI_CORE,
        slots=device.count,
        healthy=device.health and device.mode == Mode.HAMI_CORE,
        numa=device.numa if device.numa >= 0 else None,
    )


def _mode_problems(raws: Iterable[msgspec.Raw]) -> list[Problem]:
    """Say of each GPU in a mode that cannot be shared from here why it takes no pods."""
    problems = []
    for number, raw in enumerate(raws):
        try:
            device = _DEVICE.decode(raw)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
        if device.mode != Mode.HAMI_CORE:
            what = (
                f"{quote(device.id)} is in mode {quote(device.mode)}, so it takes no pods of ours"
            )
            problems.append(_problem(number, what, f"mode {Mode.HAMI_CORE}: {_MIG}"))
    return problems


def _problem(number: int, what: str, accepted: str) -> Problem:
    return Problem(path=f"{REGISTER_ANNOTATION}[{number}]", what=what, accepted=accepted)


def registered_device(
    gpu: Gpu, *, count: int, memory: int, cores: int, healthy: bool
) -> RegisteredDevice:
    """Return the record of *gpu*: *count* shares, *memory* in MiB and *cores* in percent."""
    return RegisteredDevice(
        id=gpu.uuid,
        index=gpu.index,
        count=count,
        devmem=memory,
        devcore=cores,
        type=gpu.model if "NVIDIA" in gpu.model else f"{_TYPE_PREFIX}{gpu.model}",
        numa=gpu.numa or 0,
        health=healthy,
    )


def encode_hami_register(devices: Iterable[RegisteredDevice]) -> str:
    """Return the annotation with all fields: HAMi reads a missing one as 0 or false."""
    return msgspec.json.encode(list(devices)).decode()
