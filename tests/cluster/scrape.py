"""What Prometheus would be told, read as a test asks for it."""

import re
from typing import Final

_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Scrape:
    """The samples of one answer in Prometheus' text format."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def of(self, name: str, **labels: str) -> list[float]:
        """Return the values of one metric where all these labels stand."""
        found = []
        for line in self._lines:
            before, _, value = line.rpartition(" ")
            has = dict(_LABEL.findall(before))
            if before.startswith(f"{name}{{") and labels.items() <= has.items():
                found.append(float(value))
        return found
