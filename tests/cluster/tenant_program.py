"""The interception library's stand-in as what runs in a container that a real kubelet starts.

Orders and answers go through a volume of the pod, which is a folder of the node.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.builders.pods import container
from tests.cluster.api import Json, wait_for
from tests.cluster.image.archive import PROBE
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import RUN_WITHIN, container_id
from tests.fakes.hami_core import program

VOLUME: Final = {"name": "orders", "emptyDir": {}}  # of its pod
_PLACE: Final = "/orders"


def files() -> Mapping[str, Path]:
    """Return the program by its place in an image, built to run where there is nothing else."""
    return {"tenant": program("E", "-static")}


def played(limits: Mapping[str, object]) -> Json:
    """Write a container that runs it; it attaches to no region before somebody gives orders."""
    mounts = [{"name": VOLUME["name"], "mountPath": _PLACE}]
    return container(limits=limits, image=PROBE, command=_command("main"), volumeMounts=mounts)


def _command(name: str) -> list[str]:
    return ["/tenant", f"{_PLACE}/{name}.orders", f"{_PLACE}/{name}.answers"]


class TenantProgram:
    """One of its processes, which attaches once it is entered; ``library.c`` lists the orders."""

    def __init__(self, found: GpuNode, what: Json, name: str = "main") -> None:
        """Mean the first process of a pod's only container, or start another called *name*."""
        self._host = found.node.host
        pods, uid = self._host.folder / "var/lib/kubelet/pods", str(what["metadata"]["uid"])
        folder = pods / uid / "volumes/kubernetes.io~empty-dir" / str(VOLUME["name"])
        self._orders, self._answers = folder / f"{name}.orders", folder / f"{name}.answers"
        self._file = -1
        if name != "main":
            found.node.runtime.execute(container_id(what), name, *_command(name))

    def __enter__(self) -> Self:
        wait_for(self._orders.exists, within=RUN_WITHIN)
        before = len(self._told())  # of an earlier life
        # To read too, so that it opens even while nobody reads.
        self._file = os.open(self._orders, os.O_RDWR | os.O_CLOEXEC)
        self._answer(before)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def tell(self, order: str) -> str:
        """Return the answer to one order."""
        before = len(self._told())
        os.write(self._file, f"{order}\n".encode())
        return self._answer(before)

    def kill(self) -> None:
        """End it without a chance to tidy up, by its own word for its number on the node."""
        wait_for(lambda: self.tell("host") != "0", within=RUN_WITHIN)
        self._host.run("kill", "-9", self.tell("host"))

    def _told(self) -> list[str]:
        """Return all whole lines of its answers, in every life."""
        if not self._answers.exists():
            return []
        return self._answers.read_text().split("\n")[:-1]

    def _answer(self, before: int) -> str:
        return wait_for(lambda: self._told()[before:], within=RUN_WITHIN)[0]
