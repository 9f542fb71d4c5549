"""Pods lost while agents are replaced and killed under them, on a real kubelet with its defaults.

Pods arrive at 2 per second on one node, go through kube-scheduler and our hooks, and run. Meanwhile
the node's agent is replaced again and again, and killed again and again. A pod is lost that kubelet
ends for good, which it does with each that it admits while no device plugin serves.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.control_plane import control_plane
from benchmarks.report import Bar, conclude, parser
from tests.cluster import tenant_program
from tests.cluster.arrivals import AgentPod, Arrivals, agent_pod, lost
from tests.cluster.node_agent import served
from tests.cluster.node_pods import team_of
from tests.cluster.node_site import IMAGES, node_site

CANNOT_RUN: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Measure, print what was lost, judge; return the exit code."""
    command = parser("Count the pods that are lost while agents are replaced and killed.")
    command.add_argument("--rollouts", type=int, default=10, help="times to replace it (10)")
    command.add_argument("--kills", type=int, default=10, help="times to kill it (10)")
    command.add_argument("--pods", type=int, default=300, help="pods that arrive at least (300)")
    options = command.parse_args(arguments)
    programs = control_plane()
    if programs is None:
        return CANNOT_RUN
    acts: dict[str, tuple[Callable[[AgentPod], None], int]] = {
        "rollouts": (AgentPod.roll_out, options.rollouts),
        "kills": (AgentPod.kill_agent, options.kills),
    }
    figures: dict[str, dict[str, object]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="restarts-", ignore_cleanup_errors=True) as folder,
        node_site(programs, Path(folder), images=IMAGES, more=tenant_program.files()) as node,
        served(node) as found,
        agent_pod(found) as pair,
    ):
        for name, (act, count) in acts.items():
            figures[name] = measure(pair, act, count=count, pods=options.pods // len(acts))
            print(name, figures[name], flush=True)
    return conclude(bars(figures), figures, options.json)


def bars(figures: Mapping[str, Mapping[str, object]]) -> list[Bar]:
    """Judge how many pods were lost."""
    return [
        Bar(name=f"lost_in_{name}", value=len(list(seen["lost"])), limit=0, at_most=True)  # type: ignore[call-overload]
        for name, seen in figures.items()
    ]


def measure(
    pair: AgentPod, act: Callable[[AgentPod], None], *, count: int, pods: int
) -> dict[str, object]:
    """Do *act* *count* times under at least *pods* arriving pods; return what became of them."""
    began = time.monotonic()
    with team_of(pair.gpu_node) as team:
        with Arrivals(pair.gpu_node, team) as arrivals:
            for done in range(1, count + 1):
                while arrivals.count < pods * done // (count + 1):
                    time.sleep(0.1)
                act(pair)
            while arrivals.count < pods:
                time.sleep(0.1)
        ended = arrivals.ended()
    return {
        "times": count,
        "pods": len(ended),
        "lost": lost(ended),
        "seconds": round(time.monotonic() - began, 1),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
