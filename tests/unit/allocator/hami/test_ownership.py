"""A node that HAMi and we both serve is told, and takes no pods where both plugins give it out."""

from dataclasses import replace

import msgspec
import pytest

from allocator.config.settings import DEFAULTS, HamiSettings, NodeAgent, Settings
from allocator.hami.node_marks import HamiMarks
from allocator.hami.ownership import (
    IDLE_AGENT,
    TWO_PLUGINS,
    TWO_SCHEDULERS,
    conflict_of_plugins,
    ownership_warning,
)
from allocator.hami.registered_gpus import register_digest

REGISTERED = msgspec.structs.replace(DEFAULTS, hami_register=True)
HAMI = msgspec.structs.replace(DEFAULTS, node_agent=NodeAgent.HAMI)
RENAMED = msgspec.structs.replace(HAMI, hami=HamiSettings(count_name="x.y/gpu"))
UPSTREAM = msgspec.structs.replace(DEFAULTS, node_agent=NodeAgent.UPSTREAM)
OFFERED = frozenset({"nvidia.com/gpu"})
FOREIGN = HamiMarks(register="[]", offered=OFFERED)
OURS = HamiMarks(register="[]", offered=OFFERED, digest=register_digest("[]"))
ASKED = HamiMarks(register="[]", offered=OFFERED, handshake="Requesting_2026-11-25 03:00:00")
REPORTED = HamiMarks(register="[]", offered=OFFERED, handshake="Reported 2026-11-25 03:00:00")


@pytest.mark.parametrize(
    ("marks", "settings", "has_agent", "why"),
    [
        (FOREIGN, REGISTERED, True, TWO_PLUGINS),
        (OURS, REGISTERED, True, ""),
        (HamiMarks(), REGISTERED, True, ""),
        (FOREIGN, REGISTERED, False, ""),
        (FOREIGN, DEFAULTS, True, ""),
        (FOREIGN, HAMI, True, ""),
    ],
)
def test_two_plugins_close_a_node(
    marks: HamiMarks, settings: Settings, *, has_agent: bool, why: str
) -> None:
    """Where we register it, and the register there is another's."""
    assert conflict_of_plugins(marks, settings, has_agent=has_agent) == why


@pytest.mark.parametrize(
    ("marks", "settings", "has_agent", "why"),
    [
        (ASKED, HAMI, False, TWO_SCHEDULERS),
        (REPORTED, HAMI, False, ""),
        (FOREIGN, HAMI, False, ""),
        (FOREIGN, HAMI, True, IDLE_AGENT),
        (HamiMarks(offered=OFFERED), HAMI, True, ""),
        (HamiMarks(offered=OFFERED, handshake=ASKED.handshake), HAMI, False, ""),
        (HamiMarks(handshake=ASKED.handshake), HAMI, False, ""),
        (ASKED, RENAMED, False, ""),
        (replace(ASKED, offered=frozenset({"x.y/gpu"})), RENAMED, False, TWO_SCHEDULERS),
        (replace(ASKED, offered=frozenset()), HAMI, False, ""),
        (ASKED, DEFAULTS, False, ""),
        (ASKED, UPSTREAM, False, ""),
        (ASKED, REGISTERED, True, ""),
    ],
)
def test_two_schedulers_are_told(
    marks: HamiMarks, settings: Settings, *, has_agent: bool, why: str
) -> None:
    """On nodes of HAMi's plugin; on ours HAMi's scheduler is welcome to ask."""
    assert ownership_warning(marks, settings, has_agent=has_agent) == why


def test_each_sentence_says_what_helps() -> None:
    """It fits an Event, and names what to remove."""
    for text in (TWO_PLUGINS, TWO_SCHEDULERS, IDLE_AGENT):
        assert "remove" in text
        assert len(text) < 400
