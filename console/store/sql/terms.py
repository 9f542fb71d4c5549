"""Terms: the texts that lists are filtered by, as numbers."""

from collections.abc import Iterable, Mapping
from typing import Final

from console.records.limits import term
from console.store.sql.database import Transaction, marks

_MOST_CACHED: Final = 50_000
_CHUNK: Final = 500


class Terms:
    """Numbers of texts. A number is never given to another text, so what was read stays true.

    Several threads may read through one; each answer is made of what this call saw.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def forget(self) -> None:
        """Forget all, because what was added last may not have been written."""
        self._numbers, self._texts = {}, {}

    def numbers(self, transaction: Transaction, texts: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those *texts* that have one."""
        wanted = {text: term(text) for text in texts}
        known = self._numbers
        found = {short: known[short] for short in set(wanted.values()) if short in known}
        missing = sorted(set(wanted.values()) - found.keys())
        for start in range(0, len(missing), _CHUNK):
            part = missing[start : start + _CHUNK]
            sql = f"SELECT text, id FROM term WHERE text IN ({marks(len(part))})"
            found.update((str(text), int(number)) for text, number in transaction.rows(sql, part))
        self._learn(found)
        return {text: found[short] for text, short in wanted.items() if short in found}

    def made(self, transaction: Transaction, texts: Iterable[str]) -> dict[str, int]:
        """Return the numbers of all *texts*, new ones where they have none."""
        wanted = set(texts)
        found = self.numbers(transaction, wanted)
        new = sorted({term(text) for text in wanted if text not in found})
        if new:
            first = next_numbers(transaction, "term", len(new))
            numbers = {text: number for number, text in enumerate(new, first)}
            transaction.run_many(
                "INSERT INTO term (id, text) VALUES (?, ?)",
                [(number, text) for text, number in numbers.items()],
            )
            self._learn(numbers)
            found |= {text: numbers[term(text)] for text in wanted if term(text) in numbers}
        return found

    def texts(self, transaction: Transaction, numbers: Iterable[int]) -> dict[int, str]:
        """Return the texts of *numbers*."""
        known, wanted = self._texts, set(numbers)
        found = {number: known[number] for number in wanted if number in known}
        missing = sorted(wanted - found.keys())
        for start in range(0, len(missing), _CHUNK):
            part = missing[start : start + _CHUNK]
            sql = f"SELECT id, text FROM term WHERE id IN ({marks(len(part))})"
            found.update((int(number), str(text)) for number, text in transaction.rows(sql, part))
        self._learn({text: number for number, text in found.items()})
        return {number: found.get(number, "") for number in wanted}

    def _learn(self, numbers: Mapping[str, int]) -> None:
        if len(self._numbers) > _MOST_CACHED:
            self.forget()
        for text, number in numbers.items():
            self._numbers[text] = number
            self._texts[number] = text


def next_numbers(transaction: Transaction, counter: str, count: int) -> int:
    """Reserve *count* numbers and return the first; a number is never reserved twice."""
    transaction.run("UPDATE counter SET value = value + ? WHERE name = ?", (count, counter))
    [[last]] = transaction.rows("SELECT value FROM counter WHERE name = ?", (counter,))
    return int(last) - count + 1


def count(transaction: Transaction, counter: str, more: int) -> None:
    """Add *more* to a counter, which may be negative."""
    if more:
        transaction.run("UPDATE counter SET value = value + ? WHERE name = ?", (more, counter))
