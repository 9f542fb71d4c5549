"""How long a pod takes from its Binding to its first process, as the parts' own logs tell it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Final, Self

from tests.cluster.api import Json
from tests.cluster.node_agent import GpuNode, log_lines

_LINE: Final = re.compile(r'time="([^"]+)" .*? msg="(.*)"', re.ASCII)
_SANDBOX: Final = re.compile(r'RunPodSandbox for (?:name|&).*?[uU]id:\\*"?([0-9a-f-]{36})')
_READY: Final = re.compile(_SANDBOX.pattern + r'.* returns sandbox id \\"([0-9a-f]{64})')
_ASKED: Final = re.compile(r'CreateContainer within sandbox \\"([0-9a-f]{64})\\" for container')
_STARTED: Final = re.compile(r'StartContainer for \\"([0-9a-f]{64})\\" returns successfully')
STEPS: Final = ("allocated", "instance", "sandbox", "prestart", "started")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds since the binding hook's answer, by pod and step, of those that could be found.

    A pod is *allocated* when its sandbox is asked for, which is right after Allocate, has its
    *sandbox* when that is made, and is past *prestart* when its container is asked for.
    """

    seconds: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, found: GpuNode, pods: Iterable[Json]) -> Self:
        """Read them of *pods*."""
        bound = {
            str(line["pod_uid"]): _when(str(line["at"]))
            for line in found.site.first.lines()
            if line.get("kind") == "bind" and line.get("outcome") == "promised"
        }
        runtime = _Runtime.read(found)
        cuts = {
            (line["gpu"], line["placed"]): _when(str(line["at"]))
            for line in log_lines(found.agent)
            if line.get("event") == "MIG reconfiguration step"
            and line.get("step") == "CreateCompute"
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
                "allocated": runtime.asked.get(uid),
                "instance": max((cuts[p] for p in places[uid] if p in cuts), default=None),
                "sandbox": runtime.sandboxes.get(uid),
                "prestart": runtime.created.get(uid),
                "started": runtime.started.get(status["containerID"].rpartition("/")[2]),
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


@dataclass(frozen=True, slots=True)
class _Runtime:
    """When the runtime was asked for what and had it: by pod, and by container at last."""

    asked: dict[str, float] = field(default_factory=dict)
    sandboxes: dict[str, float] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, found: GpuNode) -> Self:
        self, owners = cls(), dict[str, str]()
        for line in found.node.runtime.process.log.read_text(errors="replace").splitlines():
            if (parsed := _LINE.match(line)) is None:
                continue
            at, text = _when(parsed[1]), parsed[2]
            if made := _READY.match(text):
                self.sandboxes.setdefault(made[1], at)
                owners[made[2]] = made[1]
            elif asked := _SANDBOX.match(text):
                self.asked.setdefault(asked[1], at)
            elif (created := _ASKED.match(text)) and created[1] in owners:
                self.created.setdefault(owners[created[1]], at)
            elif started := _STARTED.match(text):
                self.started[started[1]] = at
        return self


def _when(text: str) -> float:
    """Return seconds since the epoch of a time with up to nine digits after the point."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z?$", r"\1+00:00", text)).timestamp()
