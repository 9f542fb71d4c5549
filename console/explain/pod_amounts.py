"""A pod that a person describes with options of a command line."""

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
from console.languages.messages import message

CONTAINER: Final = "main"
ACCEPTED_MEMORY: Final = message("MiB, such as 18000, 18000Mi or 18Gi")
_MEMORY: Final = re.compile("([0-9]{1,10})(|Mi|Gi)")
_FACTORS: Final = {"": 1, "Mi": 1, "Gi": 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAmounts:
    """The request of the one container of such a pod."""

    memory: MiB | None = None  # of each GPU; None: all of it
    cores: CorePercent = NO_CORES  # of each GPU
    count: int = 1  # GPUs
    mode: Mode | None = None  # None: admission chooses
    models: tuple[str, ...] = ()  # as the annotation of a pod names them

    @property
    def request(self) -> PodRequest:
        """Return the request of a pod with these amounts."""
        container_request = ContainerRequest(
            name=CONTAINER,
            index=0,
            stage=Stage.APP,
            count=self.count,
            memory=self.memory,
            cores=self.cores,
        )
        return PodRequest(
            vocabulary=VOLCANO.name,
            containers=(container_request,),
            mode=self.mode,
            filters=Filters(models=self.models),
            mode_key=VOLCANO.mode_key if self.mode is not None else None,
        )


def memory_of(text: str) -> MiB | None:
    """Read an amount of memory; ``None`` where it is malformed, or more than any GPU has."""
    match = _MEMORY.fullmatch(text)
    memory = int(match[1]) * _FACTORS[match[2]] if match else 0
    return MiB(memory) if 0 < memory <= MOST_MEMORY else None


def imagined_pod(namespace: str) -> ManifestPod[PodView]:
    """Return a pod in *namespace* without a name and without a place in a manifest."""
    spec = Spec(containers=(SpecContainer(name=CONTAINER),))
    pod = PodView(metadata=PodMetadata(namespace=namespace), spec=spec)
    return ManifestPod(
        kind="Pod", name="", place="", sent={"metadata": {"namespace": namespace}}, pod=pod
    )
