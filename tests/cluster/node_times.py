"""How long a pod takes from its Binding to its first process, as the parts' own logs tell it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Final, Self

from tests.cluster.api import Json
from tests.cluster.node_agent import GpuNode, log_lines

_LINE: Final = re.compile(r'time="([^"]+)" .*? msg="(.*)"', re.ASCII)
_SANDBOX: Final = re.compile(r'RunPodSandbox for (?:name|&).*?[uU]id:\\*"?([0-9a-f-]{36})')
_STARTED: Final = re.compile(r'StartContainer for \\"([0-9a-f]{64})\\" returns successfully')
STEPS: Final = ("allocated", "instance", "started")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds since the binding hook's answer, by pod and step, of those that could be found.

    A pod is *allocated* when its sandbox is asked for, which is right after Allocate.
    """

    seconds: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, found: GpuNode, pods: Iterable[Json]) -> Self:
        """Read them of *pods*."""
        bound = {
            str(line["pod_uid"]): _when(str(line["at"]))
            for line in found.site.first.lines()
            if line.get("event") == "bind" and line.get("decision") == "promised"
        }
        sandboxes, started = _runtime(found)
        cuts = {
            (line["gpu"], line["placed"]): _when(str(line["at"]))
            for line in log_lines(found.agent)
            if line.get("event") == "cutting" and line.get("step") == "CreateCompute"
        }
        places = {
            entry.uid: [
                (grant.gpu, f"{grant.placed.profile.name} at slot {grant.placed.start}")
                for container in entry.containers
                for grant in container.grants
                if grant.placed is not None
            ]
            for entry in found.ledger().entries
        }
        seconds = {}
        for pod in pods:
            uid = pod["metadata"]["uid"]
            (status,) = pod["status"]["containerStatuses"]
            moments = {
                "allocated": sandboxes.get(uid),
                "instance": max((cuts[p] for p in places[uid] if p in cuts), default=None),
                "started": started.get(status["containerID"].rpartition("/")[2]),
            }
            seconds[uid] = {k: v - bound[uid] for k, v in moments.items() if v is not None}
        return cls(seconds)

    def table(self) -> str:
        """Return the median and the longest of each step, in a few lines."""
        lines = ["", f"from the binding hook's answer, {len(self.seconds)} pods, seconds:"]
        for step in STEPS:
            found = [times[step] for times in self.seconds.values() if step in times]
            if found:
                told = f"median {median(found):6.2f}  longest {max(found):6.2f}"
                lines.append(f"  {step:<10} {told}  of {len(found)}")
        return "\n".join(lines)


def _runtime(found: GpuNode) -> tuple[dict[str, float], dict[str, float]]:
    """Return when the sandbox of each pod was first asked for, and when each container ran."""
    sandboxes: dict[str, float] = {}
    started = {}
    for line in found.node.runtime.process.log.read_text(errors="replace").splitlines():
        if (parsed := _LINE.match(line)) is None:
            continue
        at, text = _when(parsed[1]), parsed[2]
        if sandbox := _SANDBOX.match(text):
            sandboxes.setdefault(sandbox[1], at)
        elif container := _STARTED.match(text):
            started[container[1]] = at
    return sandboxes, started


def _when(text: str) -> float:
    """Return seconds since the epoch of a time with up to nine digits after the point."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z?$", r"\1+00:00", text)).timestamp()
