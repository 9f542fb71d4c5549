"""Other plugins: whether another device plugin already serves the GPUs of this node.

Two plugins would each give out the same GPU. So the agent does not serve while another one does.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from agent.node.capacity import writable_names
from agent.node.slots import is_slot
from allocator.catalog.vocabularies import Vocabulary, foreign_prefixes
from allocator.model.untrusted import quote
from allocator.request.quantity import parse

_REMEDY: Final = "remove either that plugin or the agent from the node"


def plugin_conflict(
    allocatable: Mapping[str, str],
    added_resources: Collection[str],
    vocabularies: Collection[Vocabulary],
) -> str:
    """Return a sentence about another plugin on this node, empty where there is none.

    *added_resources* are those that our agent added to the Node. Any other resource of a known
    vocabulary comes from a plugin. A plugin that is gone leaves resources of which nothing is
    allocatable.
    """
    our_names, foreign = writable_names(vocabularies), foreign_prefixes(vocabularies)
    for name in sorted(allocatable.keys() - set(added_resources)):
        if (name in our_names or name.startswith(foreign)) and _is_positive(allocatable[name]):
            return _conflict_text(name)
    return ""


def slot_conflict(allocatable: Mapping[str, str], resource: str, registered: Iterable[str]) -> str:
    """Return the same sentence if the slots themselves are another plugin's.

    *registered* are the ids that kubelet has for *resource*; those of other plugins look different.
    """
    foreign = not all(map(is_slot, registered))
    return (
        _conflict_text(resource) if foreign and _is_positive(allocatable.get(resource, "0")) else ""
    )


def registration_conflict(registered: Collection[str], vocabularies: Iterable[Vocabulary]) -> str:
    """Return the same sentence if a plugin has *registered* a resource that the agent writes.

    Kubelet then writes that plugin's number over ours, and its devices would be given out too.
    """
    both = writable_names(vocabularies).intersection(registered)
    return _conflict_text(min(both)) if both else ""


def _conflict_text(resource: str) -> str:
    return f"another device plugin serves {quote(resource)} on this node: {_REMEDY}"


def _is_positive(text: str) -> bool:
    quantity = parse(text)
    return quantity is not None and quantity.value > 0
