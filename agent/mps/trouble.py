"""Trouble: what became of a daemon or its server between two looks, and who is hurt by it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.mps.commands import ServerState
from agent.mps.plan import MpsObservation


class MpsTroubleKind(StrEnum):
    """What happened. Public API: a metric's label."""

    DAEMON_ENDED = "daemon-ended"
    SERVER_ENDED = "server-ended"
    FAULT = "fault"
    NO_START = "no-start"  # the daemon, or what it needs, cannot be started
    NO_ROOM = "no-room"  # the server refused a client
    SILENT = "silent"  # the daemon lives and does not answer


@dataclass(frozen=True, slots=True)
class MpsTrouble:
    """One thing that happened on a GPU, as a sentence for those who have an entry there."""

    kind: MpsTroubleKind
    note: str


# The variable of a container that runs goes on naming a partition that is gone.
_START_ANEW: Final = " and their container has started anew, because its partition is gone"


def troubles_between(before: MpsObservation | None, now: MpsObservation) -> Iterator[MpsTrouble]:
    """Yield what went wrong since *before*, by itself: steps of the agent are not passed here.

    A running kernel may go on for a while after its daemon ended. The next call of its process to
    the driver fails, and new processes fail because the GPU is in EXCLUSIVE_PROCESS mode.
    """
    if before is None:
        return
    if before.alive and not now.alive:
        yield MpsTrouble(
            MpsTroubleKind.DAEMON_ENDED,
            f"its MPS daemon ended; {_clients_text(before)}, and new processes fail until the "
            f"agent has started it again{_START_ANEW if before.static else ''}",
        )
        return
    if now.why_silent and not before.why_silent:
        yield MpsTrouble(MpsTroubleKind.SILENT, f"its MPS daemon does not answer: {now.why_silent}")
    present = {server.pid for server in now.servers}
    if not now.why_silent and any(server.pid not in present for server in before.servers):
        yield MpsTrouble(
            MpsTroubleKind.SERVER_ENDED,
            f"its MPS server ended; {_clients_text(before)}, and the agent starts another",
        )
    if now.refusal and now.refusal != before.refusal:
        yield MpsTrouble(
            MpsTroubleKind.NO_ROOM,
            f"its MPS server refused a process while {len(now.clients)} were connected, which is "
            "all that it takes; the process fails, and may be started again when another has ended",
        )
    faulty = {each.pid for each in before.servers if each.state is ServerState.FAULT}
    if any(s.state is ServerState.FAULT and s.pid not in faulty for s in now.servers):
        yield MpsTrouble(
            MpsTroubleKind.FAULT,
            f"a client had a fatal fault, which hits every client of the GPU; "
            f"{_clients_text(now)}, and new processes wait until they have ended",
        )


def _clients_text(seen: MpsObservation) -> str:
    number = len(seen.clients)
    if number == 0:
        return "no process was connected"
    return "1 connected process fails" if number == 1 else f"{number} connected processes fail"
