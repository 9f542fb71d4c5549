"""HAMi's handshake on a Node, ``hami.io/node-handshake``, for its schedulers up to 2.9.

A scheduler writes ``Requesting_`` with a time of its own zone. One up to 2.9 reads a register again
only after the plugin has answered ``Reported``. Later ones need no answer; they ask again then.
"""

from datetime import UTC, datetime
from typing import Final

_REQUESTING: Final = "Requesting"
_DELETED: Final = "Deleted"
# A scheduler up to 2.9 gives up after 60 s. Whatever is answered is asked again at once.
ANSWER_AFTER_SECONDS: Final = 30.0


def encode_report(now: datetime) -> str:
    """Return the answer of a plugin that is alive at *now*, an aware time."""
    return f"Reported {now.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}000 +0000 UTC"


def asks_for_report(text: str) -> bool:
    """Say whether a handshake wants an answer: it is missing, a question, or a farewell."""
    return not text or was_asked(text)


def was_asked(text: str) -> bool:
    """Say whether a scheduler of HAMi's wrote the handshake, which no plugin does.

    Schedulers since 2.10 write the question once and leave it, so its age means nothing.
    """
    return text.startswith((_REQUESTING, _DELETED))
