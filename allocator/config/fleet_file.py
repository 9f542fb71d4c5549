"""Fleet files: imaginary GPUs for planning and simulation; webhook/samples has one.

The format is ours, so an unknown key is a typing error and is refused.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

import msgspec

from allocator.catalog.boards import MODELS, Model, bare_name, model_named, models_like
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.config.document import DocumentError, DocumentTable, Notes, read_document
from allocator.mig.profiles import canonical_profile
from allocator.model.allocation import Grant
from allocator.model.board import Placement, Profile
from allocator.model.gpu import MOST_CHUNKS, Gpu, Node
from allocator.model.problem import Loaded, Rejected
from allocator.model.request import NVIDIA, Mode
from allocator.model.units import WHOLE_GPU, CorePercent, MiB

_MAX_NODES: Final = 5000
MOST_GPUS: Final = 64  # of one node
MOST_SLOTS: Final = 1000  # of one GPU
MAX_FLEET: Final = 16 * 1024 * 1024  # bytes: 5000 nodes in use come to some ten million
_MAX_MEMORY: Final = 2**24  # MiB, 16 TiB
_OTHERS: Final = tuple(v for v in VOCABULARIES if v.mode is not None and v.family != NVIDIA)
# Modes that GPUs may be in, with the family of such GPUs; and those in which nobody shares one.
_FAMILIES: Final[dict[str, str]] = {
    Mode.MIG: NVIDIA,
    Mode.HAMI_CORE: NVIDIA,
    Mode.MPS: NVIDIA,
    **{str(vocabulary.mode): vocabulary.family for vocabulary in _OTHERS},
}
_WHOLE: Final = frozenset(str(vocabulary.mode) for vocabulary in _OTHERS if vocabulary.whole)
_KIND_KEYS: Final = ("model", "memory", "mode", "slots", "chunks", "chunkSMs")
_NODE_KEYS: Final = ("name", "count", "gpus", *_KIND_KEYS, "busy", "idle", "foreign", "unhealthy")


def load_fleet(text: str) -> Loaded[tuple[Node, ...]] | Rejected:
    """Read a fleet file; UUIDs are made from node names, so they stay from run to run."""
    notes = Notes()
    nodes: list[Node] = []
    try:
        document = DocumentTable.of(read_document(text, most=MAX_FLEET), "", notes)
    except DocumentError as error:
        notes.error("fleet", str(error), "one YAML or JSON document with a list of nodes")
    else:
        document.check_keys(("nodes",), refuse=True)
        for table in document.tables("nodes", required=True):
            nodes.extend(_nodes(table))
            if len(nodes) > _MAX_NODES:
                notes.error(table.path, "too many nodes", f"at most {_MAX_NODES}")
                break
    if len({node.name for node in nodes}) < len(nodes):
        notes.error("nodes", "a name is used twice", "a different name for each")
    return Rejected(tuple(notes.errors)) if notes.errors else Loaded(value=tuple(nodes))


def _nodes(table: DocumentTable) -> Iterator[Node]:
    table.check_keys(_NODE_KEYS, refuse=True)
    name = table.text("name")
    count = table.integer("count", 1, low=1, high=_MAX_NODES)
    gpus = [replace(gpu, index=index) for index, gpu in enumerate(_gpus(table))]
    if not 0 < len(gpus) <= MOST_GPUS:
        table.notes.error(table.at("gpus"), f"{len(gpus)} GPUs", f"1 to {MOST_GPUS}")
    elif (
        not table.notes.errors
    ):  # after an error in the GPUs these would only cause follow-up errors
        for key, change in _CHANGES.items():
            for item in table.tables(key):
                _apply_change(gpus, item, change)
        for index in table.integers("unhealthy", high=len(gpus) - 1):
            gpus[index] = replace(gpus[index], healthy=False)
    for number in range(count):
        node = name if count == 1 else f"{name}-{number}"
        yield Node(name=node, gpus=tuple(_with_uuid(gpu, node) for gpu in gpus))


def _gpus(table: DocumentTable) -> list[Gpu]:
    """Return the GPUs of a node, given as a number or as a list of kinds."""
    if not isinstance(table.values.get("gpus"), list):
        return [_gpu(table)] * table.integer("gpus", 1, low=1, high=MOST_GPUS)
    gpus: list[Gpu] = []
    common = {key: table.values[key] for key in _KIND_KEYS if key in table.values}
    for item in table.tables("gpus"):
        item.check_keys((*_KIND_KEYS, "count"), refuse=True)
        number = item.integer("count", 1, low=1, high=MOST_GPUS)
        gpus += [_gpu(DocumentTable({**common, **item.values}, item.path, item.notes))] * number
    return gpus


def _gpu(table: DocumentTable) -> Gpu:
    model = _model(table)
    mode = table.text("mode", Mode.HAMI_CORE)
    if mode not in _FAMILIES:
        table.note_wrong("mode", " or ".join(_FAMILIES))
        mode = Mode.HAMI_CORE
    board = model.board if mode == Mode.MIG else None
    if mode == Mode.MIG and board is None:
        what = f"{model.name} has no MIG profiles in the catalogue"
        table.notes.error(table.at("mode"), what, f"{Mode.HAMI_CORE}, or another model")
    return Gpu(
        uuid="",
        index=0,
        model=model.name,
        memory=MiB(table.integer("memory", model.memory, low=1, high=_MAX_MEMORY)),
        mode=Mode(mode),
        slots=table.integer("slots", 1 if mode in _WHOLE else 10, low=1, high=MOST_SLOTS),
        board=board,
        family=_FAMILIES[Mode(mode)],
        chunks=_chunks(table, "chunks", mode),
        chunk_sms=_chunks(table, "chunkSMs", mode),
    )


def _chunks(table: DocumentTable, key: str, mode: str) -> int:
    """Return a number about chunks, which only GPUs in mode mps are divided into."""
    number = table.integer(key, 0, low=0, high=MOST_CHUNKS)
    if number and mode != Mode.MPS:
        table.notes.error(table.at(key), f"{number} in mode {mode}", f"mode {Mode.MPS}, or 0")
        return 0
    return number


def _model(table: DocumentTable) -> Model:
    """Return the model by exact or loose name; an unknown model needs its memory beside it."""
    text = table.text("model")
    exact = model_named(text)
    models = (exact,) if exact is not None else models_like(text)
    if len(models) == 1:
        return models[0]
    if models:
        table.note_wrong("model", "one of " + ", ".join(bare_name(model.name) for model in models))
    elif text and "memory" not in table.values:
        names = [bare_name(name) for name in MODELS]
        close = get_close_matches(bare_name(text), names, n=3, cutoff=0.4) or names[:3]
        table.note_wrong(
            "model", f"a known model such as {', '.join(close)}, or memory in MiB beside it"
        )
    return Model(name=text, memory=MiB(1))


_Change = Callable[[Gpu, DocumentTable], Gpu]


def _apply_change(gpus: list[Gpu], item: DocumentTable, change: _Change) -> None:
    before = len(item.notes.errors)
    index = item.integer("gpu", None, low=0, high=len(gpus) - 1)
    if len(item.notes.errors) > before:
        return
    gpus[index] = gpu = change(gpus[index], item)
    free = gpu.memory - gpu.memory_promised - gpu.foreign
    if free < 0:
        what = f"GPU {index} holds {gpu.memory - free} MiB"
        item.notes.error(item.path, what, f"at most {gpu.memory} MiB on {gpu.model}")
    if gpu.cores_promised > WHOLE_GPU:
        item.notes.error(
            item.path, f"GPU {index} holds {gpu.cores_promised} % cores", "at most 100"
        )
    if len(gpu.grants) > gpu.slots:
        item.notes.error(item.path, f"GPU {index} is shared by {len(gpu.grants)}", f"{gpu.slots}")


def _busy(gpu: Gpu, item: DocumentTable) -> Gpu:
    """Return *gpu* with one more grant: an instance in mode mig, else memory and cores."""
    if gpu.mode is not Mode.MIG:
        item.check_keys(("gpu", "memory", "cores"), refuse=True)
        memory = MiB(item.integer("memory", None, low=1, high=_MAX_MEMORY))
        cores = CorePercent(item.integer("cores", 0, low=0, high=WHOLE_GPU))
        grant = Grant(gpu="", mode=gpu.mode, memory=memory, cores=cores)
        return replace(gpu, grants=(*gpu.grants, grant))
    gpu = _add_instance(gpu, item)
    if gpu.board is None or item.notes.errors:
        return gpu
    placed = gpu.instances[-1]
    cores = CorePercent(WHOLE_GPU * placed.profile.sms // gpu.board.sms)
    grant = Grant(gpu="", mode=gpu.mode, memory=placed.profile.memory, cores=cores, placed=placed)
    return replace(gpu, grants=(*gpu.grants, grant))


def _add_instance(gpu: Gpu, item: DocumentTable) -> Gpu:
    """Return *gpu* with one more live MIG instance."""
    item.check_keys(("gpu", "profile", "start"), refuse=True)
    name = item.text("profile")
    profile = None if gpu.board is None else canonical_profile(gpu.board, name)
    if gpu.board is None:
        item.note_wrong("profile", f"memory and cores: {gpu.model} is in mode {gpu.mode}")
    elif profile is None:
        item.note_wrong(
            "profile", f"a profile of {gpu.model}: " + ", ".join(p.name for p in gpu.board.profiles)
        )
    if profile is None:
        return gpu
    free = _free_starts(gpu, profile)
    if item.values.get("start") not in free:
        item.note_wrong(
            "start", f"a free start of {name}: {', '.join(map(str, free)) or 'none left'}"
        )
        return gpu
    return replace(
        gpu,
        instances=(*gpu.instances, Placement(profile, item.integer("start", None, low=0, high=63))),
    )


def _free_starts(gpu: Gpu, profile: Profile) -> list[int]:
    taken = sum(placed.mask for placed in gpu.instances)
    alike = sum(placed.profile == profile for placed in gpu.instances)
    if profile.limit is not None and alike >= profile.limit:
        return []
    return [start for start in profile.starts if not profile.mask(start) & taken]


def _foreign(gpu: Gpu, item: DocumentTable) -> Gpu:
    """Return *gpu* with memory held by processes outside our ledger."""
    item.check_keys(("gpu", "memory"), refuse=True)
    return replace(gpu, foreign=MiB(item.integer("memory", None, low=0, high=_MAX_MEMORY)))


_CHANGES: Final[dict[str, _Change]] = {"busy": _busy, "idle": _add_instance, "foreign": _foreign}


def _with_uuid(gpu: Gpu, node: str) -> Gpu:
    """Return *gpu* with its own UUID, also in its grants."""
    uuid = stable_uuid("GPU", f"{node}/{gpu.index}")
    return replace(
        gpu, uuid=uuid, grants=tuple(msgspec.structs.replace(g, gpu=uuid) for g in gpu.grants)
    )


def stable_uuid(kind: str, seed: str) -> str:
    """Return a UUID that depends on *seed* alone, as NVML writes it: ``GPU-…`` or ``MIG-…``."""
    text = hashlib.sha256(seed.encode()).hexdigest()
    return f"{kind}-{'-'.join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))}"
