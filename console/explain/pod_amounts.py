"""Amounts: a pod as a person describes it on a command line, before there is a manifest."""

import re
from dataclasses import dataclass
from typing import Final

from allocator.catalog.vocabularies import VOLCANO
from allocator.config.manifest import ManifestPod
from allocator.model.request import ContainerRequest, Filters, Mode, PodRequest, Stage
from allocator.model.units import NO_CORES, CorePercent, MiB
from allocator.request.pod_fields import SpecContainer
from allocator.request.resource_names import MOST_MEMORY
from console.cluster.pod import PodMetadata, PodView, Spec

CONTAINER: Final = "main"
MEMORY_ACCEPTED: Final = "MiB, such as 18000, 18000Mi or 18Gi"
_MEMORY: Final = re.compile("([0-9]{1,10})(|Mi|Gi)")
_FACTORS: Final = {"": 1, "Mi": 1, "Gi": 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAmounts:
    """What one container asks for on each of *count* GPUs; no ``memory`` is all of a GPU's.

    ``mode`` is ``None`` where admission is to choose; ``models`` are as a pod names them.
    """

    memory: MiB | None = None
    cores: CorePercent = NO_CORES
    count: int = 1
    mode: Mode | None = None
    models: tuple[str, ...] = ()

    @property
    def request(self) -> PodRequest:
        """Return what a pod asks for that asks so."""
        asked = ContainerRequest(
            name=CONTAINER,
            index=0,
            stage=Stage.APP,
            count=self.count,
            memory=self.memory,
            cores=self.cores,
        )
        return PodRequest(
            vocabulary=VOLCANO.name,
            containers=(asked,),
            mode=self.mode,
            filters=Filters(models=self.models),
        )


def memory_of(text: str) -> MiB | None:
    """Read an amount of memory; ``None`` where it is none, or more than any GPU has."""
    match = _MEMORY.fullmatch(text)
    memory = int(match[1]) * _FACTORS[match[2]] if match else 0
    return MiB(memory) if 0 < memory <= MOST_MEMORY else None


def imagined_pod(namespace: str) -> ManifestPod[PodView]:
    """Return a pod in *namespace* that no manifest makes: it has no name and no place."""
    spec = Spec(containers=(SpecContainer(name=CONTAINER),))
    pod = PodView(metadata=PodMetadata(namespace=namespace), spec=spec)
    return ManifestPod(
        kind="Pod", name="", place="", sent={"metadata": {"namespace": namespace}}, pod=pod
    )
