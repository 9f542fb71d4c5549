"""Quantities: numbers as Kubernetes writes them, read exactly and never as a float."""

import re
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

LARGEST: Final = 2**63 - 1  # what the API server can hold as an integer; it caps "8Ei" there
LONGEST: Final = 64  # characters; an integer in canonical form has at most 20
_SAFE_DIGITS: Final = 15  # digits that fit the API server's integer even with a "k" behind them
_LARGEST_EXPONENT: Final = (
    128  # a larger exponent exceeds every bound, whatever LONGEST digits precede it
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_THOUSANDS: Final = frozenset("kMGTPE")
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SCALES: Final = MappingProxyType(
    {suffix: Fraction(10) ** power for suffix, power in {**_DECIMAL, "E": 18}.items()}
    | {suffix: Fraction(2) ** power for suffix, power in _BINARY.items()}
)
_NUMBER: Final = re.compile(r"([+-]?+)([0-9]*+)(?:\.([0-9]*+))?+(.*+)", re.DOTALL)
_EXPONENT: Final = re.compile(r"[eE]([+-]?+[0-9]++)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as it was written."""

    value: Fraction  # exact
    suffix: str = ""  # as written: Gi, e3

    @property
    def negative(self) -> bool:
        """Say whether it is below zero."""
        return self.value < 0

    @property
    def fraction(self) -> bool:
        """Say whether it is not a whole number; extended resources must be whole."""
        return self.value.denominator != 1

    @property
    def overflow(self) -> bool:
        """Say whether it exceeds what the API server can hold as an integer."""
        return abs(self.value) > LARGEST

    @property
    def unit(self) -> bool:
        """Say whether a unit was written, other than ``k``: the API server writes 3000 as 3k."""
        return self.suffix not in {"", "k"} and self.suffix in _SCALES

    @property
    def decimal(self) -> bool:
        """Say whether its suffix may be the API server's own, which writes 3000000 as 3M."""
        return self.suffix in _THOUSANDS


def parse_plain(text: str | int) -> int | None:
    """Return the value of digits, or of digits and ``k``: the hot path of admission.

    ``None`` means that *text* must go to :func:`parse`.
    """
    if isinstance(text, int):
        return text if 0 <= text <= LARGEST else None
    digits, scale = (text[:-1], 1000) if text[-1:] == "k" else (text, 1)
    if len(digits) <= _SAFE_DIGITS and digits.isdigit() and digits.isascii():
        return int(digits) * scale
    return None


def parse(text: str | int) -> Quantity | None:
    """Read *text* by the rules of apimachinery's ``ParseQuantity``; ``None``: not a quantity.

    One difference: a lone ``k``, which is zero there, is not a quantity here.
    """
    if isinstance(text, int):
        return Quantity(value=Fraction(text))
    match = _NUMBER.fullmatch(text) if 0 < len(text) <= LONGEST else None
    if match is None:
        return None
    sign, whole, part, suffix = match[1], match[2], match[3] or "", match[4]
    scale = _scale(suffix)
    if scale is None or not whole + part:
        return None
    value = Fraction(int(whole + part), 10 ** len(part)) * scale
    return Quantity(value=-value if sign == "-" else value, suffix=suffix)


def _scale(suffix: str) -> Fraction | None:
    if suffix in _SCALES:
        return _SCALES[suffix]
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        return None
    return Fraction(10) ** max(-_LARGEST_EXPONENT, min(int(exponent[1]), _LARGEST_EXPONENT))


def in_digits(text: str | int) -> str:
    """Return an amount as a person writes it: the API server's ``3k`` as 3000.

    What is no plain amount, such as ``3Gi``, is returned as it is.
    """
    number = parse_plain(text)
    return str(text) if number is None else str(number)


def canonical(number: int) -> str:
    """Write *number* as the API server hands it out: 3000 as ``3k``, 10240 as it is."""
    for suffix in ("", "k", "M", "G", "T", "P"):
        if number == 0 or number % 1000:
            return f"{number}{suffix}"
        number //= 1000
    return f"{number}E"
