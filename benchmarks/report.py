"""The output of every benchmark: a table, JSON with its bars, an exit code."""

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: *value* must be at least *limit*, or at most if ``at_most``."""

    name: str
    value: float
    limit: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """Say whether the bar is met."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "MISSED"
        return (
            f"{self.name}: {self.value:.3g} {'≤' if self.at_most else '≥'} {self.limit} {verdict}"
        )


def p99(figures: Sequence[float]) -> float:
    """Return the 99th percentile of what two or more *figures* are a sample of.

    Of few figures that lies beyond the largest, which then stands for it.
    """
    return min(max(figures), quantiles(figures, n=100)[98])


def parser(description: str) -> ArgumentParser:
    """Return a command line that knows ``--json FILE``."""
    made = ArgumentParser(description=description)
    made.add_argument(
        "--json", type=Path, metavar="FILE", help="write bars and figures to this file"
    )
    return made


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay *rows* out under *header*: first column to the left, the others to the right."""
    lines = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def conclude(bars: Sequence[Bar], figures: Mapping[str, object], file: Path | None) -> int:
    """Print *bars*, write them with *figures* to *file*, return 1 if one does not hold."""
    for bar in bars:
        print(bar)
    if file is not None:
        judged = [
            {"name": b.name, "value": b.value, "limit": b.limit, "holds": b.holds} for b in bars
        ]
        file.write_text(json.dumps({"bars": judged, **figures}, indent=2) + "\n")
    return 0 if all(bar.holds for bar in bars) else 1
