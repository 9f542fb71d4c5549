"""What is used now of what was promised, from the agents' figures that a Prometheus has scraped.

The console asks it, restricts the answer to what a person may see, and passes on rows of these
classes. A figure that nobody has measured is ``None``: a GPU in MIG mode has none of its compute.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.model.untrusted import is_safe_name
from console.records.query import Scope

MOST_SERIES: Final = 50_000  # that are read of one answer
MOST_NAMESPACES: Final = 500  # in one question
_LIMIT: Final = "vgpu_container_memory_limit_bytes"
_USED: Final = "vgpu_container_memory_used_bytes"
_CORES: Final = "vgpu_container_cores_used_ratio"
_KERNEL: Final = "vgpu_container_last_kernel_timestamp_seconds"
_INFO: Final = "vgpu_device_info"
_MEMORY: Final = "vgpu_device_memory_bytes"
_PROMISED: Final = "vgpu_device_memory_promised_bytes"
_DEVICE_USED: Final = "vgpu_device_memory_used_bytes"
_CORES_PROMISED: Final = "vgpu_device_cores_promised_ratio"
_CORES_BUSY: Final = "vgpu_device_cores_used_ratio"
_OF_CONTAINERS: Final = (_LIMIT, _USED, _CORES, _KERNEL)
_OF_GPUS: Final = (_INFO, _MEMORY, _PROMISED, _DEVICE_USED, _CORES_PROMISED, _CORES_BUSY)
_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """What one container holds and uses of one GPU; ``idle_seconds`` since its last kernel."""

    namespace: str
    pod: str
    container: str
    node: str = ""
    device: str = ""  # index of the GPU
    promised_mib: int | None = None
    used_mib: int | None = None
    cores_used_percent: float | None = None
    idle_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What is promised and used of one GPU."""

    node: str
    device: str  # its index
    model: str = ""
    mode: str = ""
    memory_mib: int | None = None
    promised_mib: int | None = None
    used_mib: int | None = None
    cores_promised_percent: float | None = None
    cores_used_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UseAnswer:
    """What the console answers; ``gpus`` is empty for who may not see nodes."""

    containers: tuple[ContainerUse, ...] = ()
    gpus: tuple[GpuUse, ...] = ()


def container_question(scope: Scope) -> str:
    """Return the question for all containers that *scope* includes."""
    names = f'__name__=~"{"|".join(_OF_CONTAINERS)}"'
    if scope.namespaces is None:
        return f"{{{names}}}"
    allowed = sorted(name for name in scope.namespaces if is_safe_name(name))[:MOST_NAMESPACES]
    pattern = "|".join(name.replace(".", "[.]") for name in allowed)
    # A namespace has no empty name, so the pattern of nobody matches nothing.
    return f'{{{names}, namespace=~"{pattern or "-"}"}}'


def gpu_question(scope: Scope) -> str | None:
    """Return the question for all GPUs, ``None`` where *scope* includes no nodes."""
    return f'{{__name__=~"{"|".join(_OF_GPUS)}"}}' if scope.cluster else None


def containers_in_use(answer: object, scope: Scope, now: float) -> tuple[ContainerUse, ...]:
    """Return the containers of an answer to :func:`container_question`, at *now* in Unix time.

    What *scope* does not include is left out, whatever the answer has.
    """
    found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for labels, value in _samples(answer, _OF_CONTAINERS):
        keys = ("namespace", "pod", "container", "instance", "device")
        found[tuple(labels.get(key, "") for key in keys)][labels.get("__name__", "")] = value
    return tuple(
        ContainerUse(
            namespace=key[0],
            pod=key[1],
            container=key[2],
            node=key[3],
            device=key[4],
            promised_mib=_mib(values.get(_LIMIT)),
            used_mib=_mib(values.get(_USED)),
            cores_used_percent=_percent(values.get(_CORES)),
            idle_seconds=_since(values.get(_KERNEL), now),
        )
        for key, values in sorted(found.items())
        if scope.namespaces is None or key[0] in scope.namespaces
    )


def gpus_in_use(answer: object, scope: Scope) -> tuple[GpuUse, ...]:
    """Return the GPUs of an answer to :func:`gpu_question`, none where *scope* has no nodes."""
    if not scope.cluster:
        return ()
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    about: dict[tuple[str, str], Mapping[str, str]] = {}
    for labels, value in _samples(answer, _OF_GPUS):
        key = (labels.get("node", ""), labels.get("device", ""))
        found[key][labels.get("__name__", "")] = value
        if labels.get("__name__") == _INFO:
            about[key] = labels
    return tuple(
        GpuUse(
            node=key[0],
            device=key[1],
            model=about.get(key, {}).get("model", ""),
            mode=about.get(key, {}).get("mode", ""),
            memory_mib=_mib(values.get(_MEMORY)),
            promised_mib=_mib(values.get(_PROMISED)),
            used_mib=_mib(values.get(_DEVICE_USED)),
            cores_promised_percent=_percent(values.get(_CORES_PROMISED)),
            cores_used_percent=_percent(values.get(_CORES_BUSY)),
        )
        for key, values in sorted(found.items())
    )


def _samples(answer: object, metrics: Collection[str]) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of each series of *metrics*; what is malformed is left out.

    *answer* is the body of Prometheus' HTTP API, or its ``data``.
    """
    data = answer.get("data", answer) if isinstance(answer, Mapping) else answer
    result = data.get("result") if isinstance(data, Mapping) else data
    for one in result[:MOST_SERIES] if isinstance(result, Sequence) else ():
        found = _sample(one)
        if found is not None and found[0].get("__name__") in metrics:
            yield found


def _sample(one: object) -> tuple[Mapping[str, str], float] | None:
    labels = one.get("metric") if isinstance(one, Mapping) else None
    if not isinstance(one, Mapping) or not isinstance(labels, Mapping):
        return None
    try:
        _, text = one["value"]
        value = float(text)
    except (KeyError, TypeError, ValueError):
        return None
    return (
        ({str(key): str(label) for key, label in labels.items()}, value)
        if math.isfinite(value)
        else None
    )


def _mib(value: float | None) -> int | None:
    return None if value is None else int(value / _MIB)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)


def _since(time: float | None, now: float) -> float | None:
    return None if time is None else round(max(0.0, now - time), 1)
