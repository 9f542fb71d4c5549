"""News: notes of Events about what containers received and how GPUs were reconfigured.

Numbers change from one attempt to the next. A note that differs only in numbers is not news.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from agent.core.content import ContainerEdits
from agent.core.cutting import placement_name
from agent.core.progress import Outcome, Progress
from agent.core.promise import Share
from agent.core.standing import LiveInstance
from allocator.core.wording import quote
from allocator.model.gpu import Grant

_DIGITS: Final = re.compile(r"\d+")


def allocation_note(share: Share, content: ContainerEdits) -> str:
    """Return what the container of *share* was given."""
    given = map(_grant_text, share.grants, content.shown)
    return f"container {quote(share.owner.container)}: {'; '.join(given)}"


def gist(sentence: str) -> str:
    """Return what is left of *sentence* without its numbers."""
    return _DIGITS.sub("", sentence)


def recuts(before: Progress, now: Progress, *, seconds: float) -> Iterator[tuple[Outcome, str]]:
    """Yield how a GPU changed between two looks, and which pending cuts failed."""
    old, new = _layout(before.present), _layout(now.present)
    if new != old:
        yield Outcome.DONE, f"{old} → {new} in {seconds:.1f} s"
    left = f"layout unknown: {now.problem}" if now.problem else f"layout now: {new}"
    for place, trouble in now.troubles.items():
        if trouble != before.troubles.get(place):
            yield Outcome.FAILED, f"{trouble.what}: {trouble.why}; {left}"


def _layout(present: Iterable[LiveInstance]) -> str:
    """Return how a GPU is cut, as ``1g.5gb at 0, 1 + 3g.20gb at 4``: instances by memory slot."""
    starts: dict[str, list[int]] = {}
    for one in sorted(present, key=lambda one: one.instance.start):
        starts.setdefault(_shape(one), []).append(one.instance.start)
    cut = (f"{shape} at {', '.join(map(str, found))}" for shape, found in starts.items())
    return " + ".join(cut) or "no instances"


def _shape(one: LiveInstance) -> str:
    name = f"profile {one.instance.profile}" if one.placed is None else one.placed.profile.name
    return name if one.instance.uuid else f"{name} without compute instance"


def _grant_text(grant: Grant, shown: str) -> str:
    if grant.placed is not None:
        return f"{placement_name(grant.placed)} of {grant.gpu} ({shown})"
    cores = f" and {grant.cores} % of its compute" if grant.cores else ""
    return f"{grant.memory} MiB{cores} on {grant.gpu}"
