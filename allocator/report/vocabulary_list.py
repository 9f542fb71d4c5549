"""Vocabularies as a list: the names by which pods ask, what they mean, and whose GPUs they are."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from allocator.catalog.vocabularies import Vocabulary
from allocator.families.registry import family_named
from allocator.model.request import Mode
from allocator.request.wording import memory_text

_AGENT: Final = "vgpu-admission, or Volcano's device plugin with nodeAgent: upstream"


def modes_in(vocabulary: Vocabulary) -> tuple[Mode, ...]:
    """Return the modes in which pods of *vocabulary* may be served."""
    if vocabulary.mode is None:
        return vocabulary.named_modes
    isolated = (Mode.HAMI_CORE,) if vocabulary.isolate_key is not None else ()
    return (vocabulary.mode, *isolated)


def vocabulary_document(
    vocabularies: Iterable[Vocabulary], served: Iterable[str]
) -> dict[str, Any]:
    """Return the document that scripts read; *served* are the names of those that are served."""
    names = frozenset(served)
    return {
        "vocabularies": [
            {
                "name": vocabulary.name,
                "served": vocabulary.name in names,
                "family": vocabulary.family,
                "modes": [str(mode) for mode in modes_in(vocabulary)],
                "nodesServedBy": nodes_served_by(vocabulary),
                "resources": [
                    {"name": name, "unit": unit} for name, unit in resource_units(vocabulary)
                ],
                "annotations": [
                    {"key": key, "says": meaning} for key, meaning in annotation_keys(vocabulary)
                ],
            }
            for vocabulary in vocabularies
        ]
    }


def nodes_served_by(vocabulary: Vocabulary) -> str:
    """Return which device plugin serves the nodes with its GPUs."""
    family = family_named(vocabulary.family)
    return _AGENT if family.inventory is None else f"the device plugin of {family.name}"


def resource_units(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Yield each resource name with the unit of its amount."""
    gpus = "whole GPUs" if vocabulary.whole else "GPUs"
    rows = (
        (vocabulary.count, gpus),
        (vocabulary.memory, f"{memory_text(vocabulary, 2).removeprefix('2 ')} on each GPU"),
        (vocabulary.percent, "% of the memory of each GPU"),
        (vocabulary.cores, "% of the compute of each GPU"),
        (vocabulary.priority, "priority of its kernels: 0 high, 1 low"),
    )
    yield from ((name, unit) for name, unit in rows if name is not None)


def annotation_keys(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Yield each annotation that its ecosystem has on pods, with what it says."""
    shares = vocabulary.share_keys
    policy, app_class = (None, None) if shares is None else (shares.policy, shares.app_class)
    rows = (
        (vocabulary.mode_key, "the mode"),
        (vocabulary.modes_key, "the accepted modes, separated by commas"),
        (vocabulary.isolate_key, "true: limits are enforced"),
        (vocabulary.use_models, "accepted models"),
        (vocabulary.not_models, "models that are not accepted"),
        (vocabulary.use_uuids, "accepted GPUs"),
        (vocabulary.not_uuids, "GPUs that are not accepted"),
        (policy, "how the GPU is shared"),
        (app_class, "with which pods it is shared"),
        (vocabulary.topology_key, "false: links count for no node"),
        (vocabulary.numa_key, "true: all GPUs are of one NUMA node"),
    )
    yield from ((key, meaning) for key, meaning in rows if key is not None)


def vocabulary_rows(
    vocabularies: Iterable[Vocabulary], served: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield rows of a table of two columns; one without the second is the head of a vocabulary."""
    names = frozenset(served)
    for vocabulary in vocabularies:
        state = "served" if vocabulary.name in names else "not served"
        modes = ", ".join(modes_in(vocabulary))
        yield f"{vocabulary.name} ({vocabulary.family}; {modes}; {state})", ""
        yield from resource_units(vocabulary)
        yield from annotation_keys(vocabulary)
