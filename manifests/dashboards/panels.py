"""Panels of Grafana dashboards, their grid, and the document around them.

A panel's description begins with the question that it answers. What nobody has measured has no
value, so gaps are not connected and nothing is shown as 0.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SCHEMA: Final = 39  # of Grafana 11
COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class PanelKind(StrEnum):
    """How figures are drawn."""

    STAT = "stat"
    BARS = "bargauge"
    LINES = "timeseries"
    STACK = "stack"
    TABLE = "table"


class Unit(StrEnum):
    """Units that Grafana writes figures with."""

    NONE = "short"
    BYTES = "bytes"
    RATIO = "percentunit"
    SECONDS = "s"
    RATE = "ops"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One expression, and the name of what it returns."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; ``page`` is the console's page that says more, with its filters."""

    title: str
    question: str
    kind: PanelKind
    series: tuple[Series, ...]
    unit: Unit = Unit.NONE
    width: int = 8
    height: int = 8
    warn: float | None = None  # values above are yellow
    bad: float | None = None  # values above are red
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRow:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardVariable:
    """A list to choose from: the values of a label."""

    name: str
    label: str  # what a person reads
    values: str  # the query for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; ``uid`` is its address, and never changes."""

    uid: str
    title: str
    about: str
    rows: tuple[PanelRow, ...]
    variables: tuple[DashboardVariable, ...] = ()
    links: tuple[tuple[str, str], ...] = field(default=())  # title and address


def one(expression: str, legend: str = "") -> tuple[Series, ...]:
    """Return the series of a panel with one expression."""
    return (Series(expression=expression, legend=legend),)


def dashboard_text(dashboard: Dashboard) -> str:
    """Return *dashboard* as the JSON that Grafana imports."""
    return json.dumps(_document(dashboard), indent=2, ensure_ascii=False) + "\n"


def _document(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["vgpu-admission"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [_link(title, url) for title, url in dashboard.links],
        "templating": {"list": [*_general_variables(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }


def _link(title: str, url: str) -> dict[str, Any]:
    return {"type": "link", "title": title, "url": url, "includeVars": True, "keepTime": True}


def _general_variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }
    yield {
        "name": "console",
        "label": "Console",
        "description": "Address of the vgpu-admission console, for the links of panels.",
        "type": "textbox",
        "query": "https://vgpu-console.example",
        "current": {
            "text": "https://vgpu-console.example",
            "value": "https://vgpu-console.example",
        },
    }


def _variable(variable: DashboardVariable) -> dict[str, Any]:
    everything = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": variable.values, "refId": variable.name},
        "definition": variable.values,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": everything,
    }


def _panels(rows: Iterable[PanelRow]) -> Iterator[dict[str, Any]]:
    """Yield the panels of all rows from left to right, each with its place in the grid."""
    number, top = 1, 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        number, top, left, tallest = number + 1, top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            number, left, tallest = number + 1, left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel) -> dict[str, Any]:
    kind = PanelKind.LINES if panel.kind is PanelKind.STACK else panel.kind
    page = [{"title": "Console", "url": f"${{console}}{panel.page}", "targetBlank": True}]
    return {
        "type": str(kind),
        "title": panel.title,
        "description": panel.question,
        "datasource": _SOURCE,
        "links": page if panel.page else [],
        "targets": [_target(series, panel.kind, n) for n, series in enumerate(panel.series)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
        **_transformations(panel.kind),
    }


def _target(series: Series, kind: PanelKind, number: int) -> dict[str, Any]:
    table = kind is PanelKind.TABLE
    instant = kind in (PanelKind.TABLE, PanelKind.STAT, PanelKind.BARS)
    return {
        "refId": chr(ord("A") + number),
        "datasource": _SOURCE,
        "expr": series.expression,
        "legendFormat": series.legend or "__auto",
        "instant": instant,
        "range": not instant,
        "format": "table" if table else "time_series",
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[Mapping[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": "yellow", "value": panel.warn}] if panel.warn is not None else []
    steps += [{"color": "red", "value": panel.bad}] if panel.bad is not None else []
    coloured = len(steps) > 1
    defaults: dict[str, Any] = {
        "unit": str(panel.unit),
        "noValue": "No data",
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if coloured else "palette-classic"},
    }
    if panel.unit is Unit.RATIO:
        defaults |= {"min": 0}
    if panel.kind in (PanelKind.LINES, PanelKind.STACK):
        stacking = "normal" if panel.kind is PanelKind.STACK else "none"
        defaults["color"] = {"mode": "palette-classic"}
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 30 if panel.kind is PanelKind.STACK else 0,
            "spanNulls": False,
            "stacking": {"mode": stacking, "group": "A"},
            "thresholdsStyle": {"mode": "line" if coloured else "off"},
        }
    return defaults


def _options(kind: PanelKind) -> dict[str, Any]:
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match kind:
        case PanelKind.STAT:
            return {"reduceOptions": reduced, "colorMode": "value", "textMode": "auto"}
        case PanelKind.BARS:
            return {"reduceOptions": reduced, "orientation": "horizontal", "displayMode": "basic"}
        case PanelKind.TABLE:
            return {"showHeader": True, "cellHeight": "sm"}
        case PanelKind.LINES | PanelKind.STACK:
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _transformations(kind: PanelKind) -> dict[str, Any]:
    """Return what makes one table of the answer: without the time, one row for each series."""
    if kind is not PanelKind.TABLE:
        return {}
    hidden = {"Time": True, "__name__": True, "job": True}
    return {
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden}},
        ]
    }


def expressions(document: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return title and expression of everything that a dashboard's document asks for."""
    return [
        (panel["title"], target["expr"])
        for panel in document["panels"]
        for target in panel.get("targets", ())
    ]
