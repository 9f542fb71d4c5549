"""Whether HAMi and we both own a node, and would give out its GPUs twice.

A node is owned by one of us: its device plugin, or ours, and one account of what is given out.
"""

from typing import Final

from allocator.catalog.hami_keys import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from allocator.config.settings import NodeAgent, Settings
from allocator.hami.handshake import was_asked
from allocator.hami.node_marks import HamiMarks
from allocator.hami.registered_gpus import has_foreign_register

TWO_PLUGINS: Final = (
    f"its annotation {REGISTER_ANNOTATION} is not ours, so HAMi's device plugin gives out its GPUs "
    "too; remove that plugin from the node and then the annotation, or remove our agent"
)
TWO_SCHEDULERS: Final = (
    "HAMi's scheduler gives out its GPUs too, by an account of its own (it wrote the annotation "
    f"{HANDSHAKE_ANNOTATION}); exclude the node there by --node-label-selector, and remove the "
    "annotation"
)
IDLE_AGENT: Final = (
    f"our agent runs beside HAMi's device plugin, to which nodeAgent {NodeAgent.HAMI} leaves the "
    "node; remove the node's label vgpu-admission.io/node"
)


def conflict_of_plugins(marks: HamiMarks, settings: Settings, *, has_agent: bool) -> str:
    """Return why a node that we register with HAMi may take no pods; empty if it may.

    *has_agent* says that our agent runs there.
    """
    ours = settings.hami_register and has_agent
    return TWO_PLUGINS if ours and has_foreign_register(marks) else ""


def ownership_warning(marks: HamiMarks, settings: Settings, *, has_agent: bool) -> str:
    """Return what is wrong with a node of HAMi's plugin that takes pods all the same."""
    alive = marks.is_alive(settings.hami.count_name)
    if settings.node_agent is not NodeAgent.HAMI or not (marks.register and alive):
        return ""
    if has_agent:
        return IDLE_AGENT
    return TWO_SCHEDULERS if was_asked(marks.handshake) else ""
