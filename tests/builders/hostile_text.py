"""Texts that would steer a terminal, hide themselves or turn a line round."""

from types import MappingProxyType
from typing import Final

HOSTILE_TEXTS: Final = MappingProxyType(
    {
        "clears-the-screen": "\x1b[2J\x1b[H",
        "writes-the-clipboard": "\x1b]52;c;cm0gLXJm\x07",
        "names-the-window": "\x1b]0;root\x07",
        "goes-back": "A100\rT4",
        "begins-a-line": "A100\nT4",
        "ends-a-line": "A100\n",
        "a-tab": "A100\tT4",
        "nul": "A\x00",
        "delete": "A\x7f",
        "c1": "\x9b2J",
        "next-line": "A\x85B",
        "turns-round": "\u202e001A",
        "isolates": "A\u2066B\u2069",
        "zero-width": "A1\u200b00",
        "word-joiner": "A\u2060B",
        "byte-order-mark": "\ufeffA100",
        "soft-hyphen": "A\xadB",
        "no-break-space": "A\xa0B",
        "a-line-of-unicode": "A\u2028B",
    }
)
