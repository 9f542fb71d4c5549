"""Used against promised, from Prometheus: the questions, and the answers as values and charts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from allocator.model.untrusted import is_safe_name
from console.languages.messages import message
from console.pages.parts.blocks import DrawnLine, PageChart, PageTable, TableColumn
from console.pages.parts.cell import TableCell, ago, mib, percent, stamp
from console.records.query import Scope

POINTS: Final = 120  # of a chart
MOST_SERIES: Final = 2000  # that are read of one answer
MOST_NAMESPACES: Final = 200  # in one question
IDLE_HOURS: Final = 6
PROMISED: Final = "vgpu_container_memory_limit_bytes"
USED: Final = "vgpu_container_memory_used_bytes"
LAST_KERNEL: Final = "vgpu_container_last_kernel_timestamp_seconds"
WITHOUT: Final = message(
    "No Prometheus is configured, so what is used is not known. The console asks "
    "one that is named by its option --prometheus."
)
UNANSWERED: Final = message("Prometheus did not answer, so what is used is not known just now.")
_MIB: Final = 1024**2
_DAY_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeries:
    """One series of an answer: its labels, and its values by Unix time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSlice:
    """A container that holds GPU memory and started no kernel for hours."""

    namespace: str
    pod: str
    container: str
    idle_seconds: float


def selector(scope: Scope) -> str:
    """Return the label matcher for what *scope* includes; it matches nothing where that is none."""
    if scope.namespaces is None:
        return ""
    names = sorted(name for name in scope.namespaces if is_safe_name(name))[:MOST_NAMESPACES]
    pattern = "|".join(name.replace(".", "[.]") for name in names)
    return f'{{namespace=~"{pattern or "-"}"}}'


def over_time(metric: str, scope: Scope) -> str:
    """Return the question for the sum of *metric* over the last day."""
    return f"sum({metric}{selector(scope)})[24h:{_DAY_MINUTES // POINTS}m]"


def by_namespace(metric: str, scope: Scope) -> str:
    """Return the question for the sum of *metric* by namespace, now."""
    return f"sum by (namespace) ({metric}{selector(scope)})"


def idle_since(scope: Scope) -> str:
    """Return the question for containers without a kernel for hours."""
    last = f"max by (namespace, pod, container) ({LAST_KERNEL}{selector(scope)})"
    return f"topk(100, time() - {last} > {IDLE_HOURS * 3600})"


def series_of(answer: object) -> tuple[UsageSeries, ...]:
    """Read an answer of Prometheus' HTTP API, or its data; what is malformed is left out."""
    data = answer.get("data", answer) if isinstance(answer, Mapping) else answer
    found = data.get("result") if isinstance(data, Mapping) else data
    if not isinstance(found, list):
        return ()
    return tuple(_series(found[:MOST_SERIES]))


def _series(found: Sequence[object]) -> Iterator[UsageSeries]:
    for one in found:
        if not isinstance(one, Mapping):
            continue
        labels = one.get("metric")
        values = one.get("values", [one.get("value")])
        if isinstance(labels, Mapping) and isinstance(values, list):
            points = tuple(_points(values[: 2 * POINTS]))
            texts = {str(key): str(value) for key, value in labels.items()}
            yield UsageSeries(labels=texts, points=points)


def _points(values: Sequence[object]) -> Iterator[tuple[float, float]]:
    for value in values:
        match value:
            case [int() | float() as time, str() as amount]:
                number = _number(amount)
                if number is not None and math.isfinite(time):
                    yield float(time), number
            case _:  # no sample
                pass


def _number(text: str) -> float | None:
    """Read a sample; ``None`` where it is no finite number."""
    try:
        number = float(text[:64])
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def amounts_by_namespace(series: Sequence[UsageSeries]) -> dict[str, int]:
    """Return MiB by namespace."""
    return {
        one.labels.get("namespace", ""): int(one.points[-1][1] / _MIB)
        for one in series
        if one.points
    }


def idle_slices(series: Sequence[UsageSeries]) -> tuple[IdleSlice, ...]:
    """Return the containers of an answer to :func:`idle_since`, the longest idle first."""
    slices = (
        IdleSlice(
            namespace=one.labels.get("namespace", ""),
            pod=one.labels.get("pod", ""),
            container=one.labels.get("container", ""),
            idle_seconds=one.points[-1][1],
        )
        for one in series
        if one.points
    )
    return tuple(sorted(slices, key=lambda idle: -idle.idle_seconds))


def usage_blocks(
    used: Sequence[UsageSeries], promised: Sequence[UsageSeries], now: datetime
) -> Iterator[PageChart | PageTable]:
    """Yield a chart of used and promised memory over the last day, and the same as a table."""
    lines = {
        "used": used[0].points if used else (),
        "promised": promised[0].points if promised else (),
    }
    points = [point for pairs in lines.values() for point in pairs]
    if not points:
        return
    begin, end = min(time for time, _ in points), max(time for time, _ in points)
    top = max(1.0, *(amount for _, amount in points))
    yield PageChart(
        title=message("Used and promised memory, last 24 hours"),
        label=message(
            "Used (solid line) and promised (dashed line), from 0 to {top:,.0f} MiB",
            top=top / _MIB,
        ),
        lines=tuple(
            DrawnLine(name=name, points=_polyline(pairs, begin, end, top=top), state=name)
            for name, pairs in lines.items()
        ),
        top=f"{top / _MIB:,.0f} MiB",
    )
    yield _usage_table(dict(lines["used"]), dict(lines["promised"]), now)


def _polyline(
    points: Sequence[tuple[float, float]], begin: float, end: float, *, top: float
) -> str:
    """Return points in the units of a chart of 400 by 120, below a line of text."""
    span = max(1.0, end - begin)
    return " ".join(
        f"{400 * (time - begin) / span:.1f},{14 + 118 * (1 - amount / top):.1f}"
        for time, amount in points[-POINTS:]
    )


def _usage_table(
    used: Mapping[float, float], promised: Mapping[float, float], now: datetime
) -> PageTable:
    times = sorted({*used, *promised}, reverse=True)[:POINTS]
    return PageTable(
        name="usage",
        folded=True,
        caption=message("Used and promised memory over time"),
        columns=(
            TableColumn(key="at", title=message("When")),
            TableColumn(key="used_mib", title=message("Used"), numeric=True),
            TableColumn(key="promised_mib", title=message("Promised"), numeric=True),
            TableColumn(key="used_percent", title=message("Share"), numeric=True),
        ),
        rows=tuple(
            _usage_cells(time, used.get(time), promised.get(time), now=now) for time in times
        ),
    )


def _usage_cells(
    time: float, used: float | None, promised: float | None, *, now: datetime
) -> tuple[TableCell, ...]:
    moment = stamp(datetime.fromtimestamp(time, UTC))
    missing = message("no sample of that time")
    return (
        ago(moment, now),
        mib(None if used is None else int(used / _MIB), why=missing),
        mib(None if promised is None else int(promised / _MIB), why=missing),
        percent(used or 0, promised or 0 if used is not None else 0),
    )
