"""The search for decisions: the values of an address, and the text of the search box."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from allocator.catalog.reason_texts import HAMI_NAMES
from allocator.model.untrusted import quote
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.cell import stamp, time_of
from console.pages.parts.words import PEOPLE_HIDDEN
from console.records.query import DecisionFilter

# The names in addresses and in the search box, and the fields of the filter.
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ns": "namespace",
        "pod": "pod",
        "owner": "owner",
        "by": "requester",
        "verdict": "verdict",
        "reason": "reason",
        "mode": "mode",
        "digest": "digest",
        "node": "node",
        "state": "state",
    }
)
PERIODS: Final[Mapping[str, tuple[PageMessage, timedelta | None]]] = MappingProxyType(
    {
        "1h": (message("the last hour"), timedelta(hours=1)),
        "24h": (message("the last 24 hours"), timedelta(hours=24)),
        "7d": (message("the last 7 days"), timedelta(days=7)),
        "30d": (message("the last 30 days"), timedelta(days=30)),
        "all": (message("all that is stored"), None),
    }
)
LONGEST: Final = 512  # characters of a search
_SPECIFIC: Final = ("digest", "pod", "owner")  # whoever names one looks further back than a day
_DIGEST: Final = re.compile("[a-z2-7]{10}")
_WORD: Final = re.compile(r'(?:([a-z]{1,10}):)?("[^"]*"|\S+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSearch:
    """What is looked for: values by their names in the address, and what is wrong with them."""

    values: Mapping[str, str]
    period: str
    filter: DecisionFilter
    problems: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the search as it is written into the box."""
        return " ".join(f"{key}:{_word(value)}" for key, value in self.values.items())


def decision_search(
    values: Mapping[str, str], now: datetime, *, people: bool = True
) -> DecisionSearch:
    """Return the search of an address; the box adds to the single values, and wins.

    Whoever may not see names of *people* cannot look for one either, and so try out names.
    """
    problems: list[str] = []
    wanted = {key: values[key].strip() for key in FIELDS if values.get(key, "").strip()}
    if box := values.get("q", "")[:LONGEST]:
        wanted |= _words(box, problems)
    if not people and wanted.pop("by", None) is not None:
        problems.append(joined_text(": ", ("by", PEOPLE_HIDDEN)))
    if "reason" in wanted:
        wanted["reason"] = HAMI_NAMES.get(wanted["reason"], wanted["reason"])
    default = "all" if any(key in wanted for key in _SPECIFIC) else "24h"
    period, since, until = _period(values, default, now, problems=problems)
    return DecisionSearch(
        values=wanted,
        period=period,
        filter=DecisionFilter(
            **{FIELDS[key]: value for key, value in wanted.items()}, since=since, until=until
        ),
        problems=tuple(problems),
    )


def _words(box: str, problems: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _WORD.finditer(box):
        key, text = match[1], match[2].strip('"')
        if key is None:
            found["digest" if _DIGEST.fullmatch(text) else "pod"] = text
        elif key in FIELDS:
            found[key] = text
        else:
            accepted = ", ".join(f"{name}:" for name in FIELDS)
            problems.append(
                message(
                    "{value} is no filter; accepted: {accepted}",
                    value=quote(match[0]),
                    accepted=accepted,
                )
            )
    return found


def _period(
    values: Mapping[str, str], default: str, now: datetime, *, problems: list[str]
) -> tuple[str, str, str]:
    """Return the name of the period, its begin and its end."""
    named, until = values.get("since", "").strip() or default, values.get("until", "").strip()
    end = ""
    if until:
        moment = time_of(until)
        end = "" if moment is None else stamp(moment)
        if moment is None:
            problems.append(joined_text(": ", ("until", _time_problem(until))))
    if named in PERIODS:
        length = PERIODS[named][1]
        return named, "" if length is None else stamp(now - length), end
    begin = time_of(named)
    if begin is None:
        names = ", ".join(PERIODS)
        problems.append(
            message(
                "since: {problem}, or one of {names}", problem=_time_problem(named), names=names
            )
        )
        return default, "", end
    return stamp(begin), stamp(begin), end


def _time_problem(text: str) -> PageMessage:
    return message(
        "{value} is no time; accepted: RFC 3339 such as {example}",
        value=quote(text),
        example="2026-11-21T12:00:00Z",
    )


def _word(value: str) -> str:
    text = value.replace('"', "")
    return f'"{text}"' if " " in text else text
