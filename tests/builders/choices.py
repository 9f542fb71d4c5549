"""Choices: how tests read one, and the small clusters in which they make it."""

from collections.abc import Iterable

from allocator.mig.geometry import Geometries, GeometryEntry, GeometryGroup, Item
from allocator.model.allocation import Grant
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.choose import Choice, PlacementPolicy
from tests.builders.model import A100_40, gpu, node, placed, snapshot


def grants(choice: Choice) -> dict[str, tuple[Grant, ...]]:
    assert choice.assignment is not None, choice.findings
    return {found.name: found.grants for found in choice.assignment.containers}


def gpus(choice: Choice, container: str = "main") -> list[str]:
    return [grant.gpu for grant in grants(choice)[container]]


def cuts(choice: Choice, container: str = "main") -> list[str]:
    return [
        f"{grant.placed.profile}@{grant.placed.start}"
        for grant in grants(choice)[container]
        if grant.placed is not None
    ]


def one_mig_gpu(
    *held: Grant, product: str = A100_40, instances: Iterable[tuple[str, int]] = ()
) -> Snapshot:
    there = [placed(name, start, product) for name, start in instances]
    return snapshot(node("n0", gpu(product, mode=Mode.MIG, grants=held, instances=there)))


def text(choice: Choice) -> str:
    assert choice.assignment is None
    (finding,) = choice.findings
    return f"{finding} [{finding.reason}]"


def only(*groups: str, product: str = "A100-SXM4-80GB") -> PlacementPolicy:
    """Allow exactly *groups* on a model: ``mixed-1=3x2g.20gb+1x1g.10gb``."""
    return PlacementPolicy(
        geometries=Geometries(
            (GeometryEntry(models=(product,), groups=tuple(group(text) for text in groups)),)
        )
    )


def group(spelled: str) -> GeometryGroup:
    name, _, parts = spelled.partition("=")
    pairs = (part.split("x", 1) for part in parts.split("+"))
    items = tuple(Item(profile=p, memory=MiB(0), count=int(n)) for n, p in pairs)
    return GeometryGroup(name=name, items=items)
