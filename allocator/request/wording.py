"""Wording: the names and units in which a person asked, for sentences that answer the request."""

from allocator.catalog.vocabularies import CATALOGUE, VOLCANO, Vocabulary
from allocator.model.request import ContainerRequest, PodRequest
from allocator.model.units import MiB
from allocator.model.untrusted import quote


def vocabulary_of(request: PodRequest) -> Vocabulary:
    """Return the names and units that the user knows, as the cluster configures them."""
    if request.configured is not None:
        return request.configured
    return next((v for v in CATALOGUE if v.name == request.vocabulary), VOLCANO)


def memory_text(names: Vocabulary, units: int) -> str:
    """Return *units* of memory with the name of the unit: ``16 GiB``."""
    unit = names.unit
    return f"{units} {unit.replace('units', 'unit', 1) if units == 1 else unit}"


def granted_memory(names: Vocabulary, memory: MiB) -> str:
    """Return *memory* that was given, which need not be whole units: ``4.75 GiB``."""
    units = round(memory / names.memory_factor, 2)
    return memory_text(names, int(units)) if units == int(units) else f"{units} {names.unit}"


def percent_text(percent: int) -> str:
    """Return *percent* for a refusal, without a percent sign.

    kube-scheduler takes the text of a refused Binding for the format of its Event: it writes
    ``0%!f(MISSING)ree`` for ``0% free``.
    """
    return f"{percent} percent"


def asked_memory(names: Vocabulary, container_request: ContainerRequest) -> str:
    """Return the memory that a container asks for on one GPU, as it asks for it."""
    if container_request.memory is not None:
        return f"{granted_memory(names, container_request.memory)} on one GPU"
    if container_request.percent is not None:
        return f"{percent_text(container_request.percent)} of the memory of one GPU"
    return "all memory of one GPU"


def memory_figure(
    names: Vocabulary, container_request: ContainerRequest, memory: MiB, *, total: MiB
) -> str:
    """Return *memory* of a GPU with *total* as :func:`asked_memory` counts it, rounded down.

    A container that asks for this figure fits into *memory*.
    """
    memory = MiB(max(0, memory))
    if container_request.memory is not None:
        return str(names.units(memory))
    return percent_text(min(100, (100 * (memory + 1) - 1) // total))


def short_name(resource: str) -> str:
    """Return a resource name as people say it: ``vgpu-memory``."""
    return resource.rpartition("/")[2]


def place_of(container_request: ContainerRequest) -> str:
    """Return where a finding about *container_request* belongs."""
    return f"container {quote(container_request.name)}"


def field_of(container_request: ContainerRequest, resource: str | None) -> str:
    """Return the path of *resource* in the pod, or of all limits."""
    kind = "initContainers" if container_request.of_init else "containers"
    limits = f"spec.{kind}[{container_request.index}].resources.limits"
    return f'{limits}["{resource}"]' if resource else limits
