"""Extended-resource capacity as an upper bound."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from agent.node.pods import NodePod
from allocator.catalog.vocabularies import Vocabulary
from allocator.mig.profiles import ProfileCapacity, profiles_of
from allocator.model.allocation import Entry, Grant
from allocator.model.board import Board
from allocator.model.gpu import Gpu
from allocator.model.request import Mode, Priority
from allocator.model.units import WHOLE_GPU
from allocator.model.usage import peak_grants
from allocator.placement.fit import hardware
from allocator.request.quantity import parse


def most_instances(board: Board) -> int:
    """Return how many instances fit on *board* at once."""
    return largest_sum(board, [1] * len(board.profiles))


def largest_sum(board: Board, worth: Sequence[int]) -> int:
    """Return the largest sum of *worth*, by profile, over all layouts of *board*.

    Instances are intervals of memory slots, so the best sum from each slot on follows from the
    slots after it. Bounds on the number of instances are ignored: the sum may only be too large.
    """
    best = [0] * (board.slots + 1)
    for slot in reversed(range(board.slots)):
        fitting = (
            value + best[slot + profile.size]
            for profile, value in zip(board.profiles, worth, strict=True)
            if slot in profile.starts and slot + profile.size <= board.slots
        )
        best[slot] = max(best[slot + 1], *fitting, 0)
    return best[0]


def total_slots(gpus: Iterable[Gpu]) -> int:
    """Return how many containers the GPUs serve at once: the slots that our plugin registers."""
    return sum(gpu.slots for gpu in gpus)


def capacity(
    gpus: Sequence[Gpu], vocabularies: Iterable[Vocabulary], *, cores_scaling: float = 1.0
) -> dict[str, int]:
    """Return the capacity of each resource except the slot; resources of amount 0 are left out.

    Unhealthy GPUs count, because kubelet's sums contain the pods on them. *cores_scaling* is the
    setting deviceCoreScaling; it raises the total, not what one GPU has.
    """
    totals: dict[str, int] = {}
    for vocabulary in vocabularies:
        serving = _serving(gpus, vocabulary)
        for name, amount in _amounts(vocabulary, cores_scaling):
            if total := sum(map(amount, serving)):
                totals[name] = total
    return totals


def _amounts(
    vocabulary: Vocabulary, cores_scaling: float
) -> list[tuple[str, Callable[[Gpu], int]]]:
    """List the resources of a vocabulary with what one GPU has of each."""
    factor, scaling = vocabulary.memory_factor, max(1.0, cores_scaling)

    def memory(gpu: Gpu) -> int:
        return _gpu_total(gpu, gpu.memory // factor, lambda profile: profile.memory // factor)

    def cores(gpu: Gpu) -> int:
        return int(scaling * _gpu_total(gpu, WHOLE_GPU, lambda profile: profile.cores))

    def percent(gpu: Gpu) -> int:
        return _gpu_total(gpu, _percent(gpu), lambda profile: profile.percent)

    def count(gpu: Gpu) -> int:
        return 1 if vocabulary.whole else gpu.slots

    def priority(gpu: Gpu) -> int:
        return gpu.slots * max(Priority)

    rows = (
        (vocabulary.memory, memory),
        (vocabulary.cores, cores),
        (vocabulary.percent, percent),
        (None if vocabulary.count == vocabulary.slot else vocabulary.count, count),
        (vocabulary.priority, priority),
    )
    return [(name, amount) for name, amount in rows if name is not None]


def _gpu_total(gpu: Gpu, shared: int, of: Callable[[ProfileCapacity], int]) -> int:
    """Return what a GPU holds at most: *shared* in hami-core mode, else the best layout's sum."""
    if gpu.mode is not Mode.MIG or gpu.board is None:
        return shared
    worth = []
    for profile in gpu.board.profiles:
        profiles = profiles_of(gpu.board, profile.name)
        worth.append(max(map(of, profiles), default=0))
    return largest_sum(gpu.board, worth)


def _percent(gpu: Gpu) -> int:
    """Return the largest sum of percentages that fits in whole MiB, each rounded down."""
    return int(WHOLE_GPU) - 1 - (-int(WHOLE_GPU) * gpu.slots // max(1, gpu.memory))


def unaccounted_capacity(
    gpus: Iterable[Gpu], entries: Iterable[Entry], pods: Iterable[NodePod]
) -> dict[str, int]:
    """Return the requests of bound pods that the capacity of the GPUs does not cover.

    These pods have no entry, or an entry on a GPU that is gone or in another mode.
    """
    modes = {gpu.uuid: gpu.mode for gpu in gpus}
    accounted = {
        entry.uid
        for entry in entries
        if all(
            modes.get(grant.gpu) is hardware(grant.mode)
            for container in entry.containers
            for grant in container.grants
        )
    }
    total: dict[str, int] = {}
    for pod in pods:
        if not pod.ended and pod.uid not in accounted:
            for name, amount in pod.requests.items():
                total[name] = total.get(name, 0) + amount
    return total


def linked_capacity(
    gpus: Sequence[Gpu],
    vocabularies: Iterable[Vocabulary],
    *,
    entries: Iterable[Entry],
    pods: Collection[NodePod],
) -> dict[str, int]:
    """Return the capacity of resources that are two views of the same GPUs.

    In a vocabulary whose count means whole GPUs, a GPU of which memory is promised leaves the
    count, and one that is promised whole takes its memory along, whatever vocabulary was asked in.
    So each amount is what live pods request of it, and what is free beside them. An entry whose
    pod is not known here yet takes nothing away: kubelet may be about to admit that pod.
    """
    live = [pod for pod in pods if not pod.ended]
    uids = {pod.uid for pod in live}
    held: dict[str, list[Grant]] = {}
    for entry in entries:
        if entry.uid in uids:
            for grant in peak_grants(entry.containers):
                held.setdefault(grant.gpu, []).append(grant)
    totals: dict[str, int] = {}
    for vocabulary in vocabularies:
        if vocabulary.whole:
            serving = [(gpu, held.get(gpu.uuid, [])) for gpu in _serving(gpus, vocabulary)]
            free = {
                vocabulary.count: sum(not grants for _, grants in serving),
                vocabulary.memory: sum(
                    _free_memory(gpu, grants) // vocabulary.memory_factor for gpu, grants in serving
                ),
            }
            for name, amount in free.items():
                if name is not None:
                    totals[name] = amount + sum(pod.requests.get(name, 0) for pod in live)
    return totals


def _free_memory(gpu: Gpu, grants: Sequence[Grant]) -> int:
    """Return the MiB that *grants* leave on a GPU; one that is promised whole has none."""
    if sum(grant.cores for grant in grants) >= WHOLE_GPU:
        return 0
    return max(0, gpu.memory - sum(grant.memory for grant in grants))


def _serving(gpus: Iterable[Gpu], vocabulary: Vocabulary) -> list[Gpu]:
    """Return the GPUs in a mode that a vocabulary can ask for."""
    return [gpu for gpu in gpus if vocabulary.mode is None or hardware(vocabulary.mode) is gpu.mode]


def desired_capacity(
    most: Mapping[str, int],
    extra: Mapping[str, int],
    names: Iterable[str],
    *,
    linked: Mapping[str, int],
) -> dict[str, int]:
    """Return the capacity to write on the Node for those *names* that the agent manages.

    A resource that no GPU has any more stays while a pod still requests it. *linked* limits what
    :func:`linked_capacity` knows more exactly.
    """
    total = {name: most.get(name, 0) + extra.get(name, 0) for name in names}
    limited = {name: min(amount, linked.get(name, amount)) for name, amount in total.items()}
    return {name: amount for name, amount in limited.items() if amount}


def writable_names(vocabularies: Iterable[Vocabulary]) -> frozenset[str]:
    """Return the resources that the agent writes: all but the slot, which kubelet writes."""
    return frozenset(
        name
        for vocabulary in vocabularies
        for name in vocabulary.resources
        if name != vocabulary.slot
    )


def slot_names(vocabularies: Iterable[Vocabulary]) -> frozenset[str]:
    """Return the names of the slot, whose capacity kubelet writes for our plugin."""
    return frozenset(vocabulary.slot for vocabulary in vocabularies)


def changes(
    existing: Mapping[str, str | int], wanted: Mapping[str, int], ours: Iterable[str]
) -> dict[str, str | None]:
    """Return the changes to ``status.capacity``; ``None`` removes a key.

    A key is never set to 0: a restarting kubelet checks running pods against it and would end them.
    """
    removed = {name: None for name in ours if name not in wanted and name in existing}
    changed = {
        name: str(amount)
        for name, amount in wanted.items()
        if _number(existing.get(name)) != amount
    }
    return removed | changed


def _number(text: str | int | None) -> int | None:
    quantity = None if text is None else parse(text)
    return None if quantity is None or quantity.fraction else int(quantity.value)
