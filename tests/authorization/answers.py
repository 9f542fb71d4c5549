"""What a cluster with our manifests answers, judged without an API server."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from manifests.generator.documents import FILES
from manifests.generator.names import Json
from tests.authorization.policies import Finding, Policies
from tests.authorization.rbac import Roles, rights
from tests.authorization.requests import attributes, review
from tests.authorization.rows import Row
from tests.authorization.world import BOOTSTRAP, SITE

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
# Roles that a site adds by installing more than the base.
MORE: Final = {
    "base": (),
    "evict": ("components/evict/rbac.yaml",),
    "extender": ("components/extender/rbac.yaml", "components/extender/bind.yaml"),
    "records": ("components/records/rbac.yaml",),
    "kube-scheduler": ("overlays/kube-scheduler/rbac.yaml",),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the authorizer allows a request, and what policies object to then."""

    allowed: bool
    findings: tuple[Finding, ...] = ()


def answer(row: Row) -> Answer:
    """Return the answer to the request of one row."""
    if not _roles(row.installed).allow(attributes(row)):
        return Answer(allowed=False)
    if row.change is None:
        return Answer(allowed=True)
    return Answer(allowed=True, findings=tuple(_policies().findings(review(row))))


def given() -> Iterator[tuple[str, Roles]]:
    """Yield each single right that roles of ours give to somebody, wherever they are installed."""
    everything = [*_written("base/kustomization.yaml"), *SITE, *BOOTSTRAP]
    for installed in MORE:
        everything += _added(installed)
    yield from rights(everything, "vgpu-")


@functools.cache
def _roles(installed: str) -> Roles:
    return Roles([*_written("base/kustomization.yaml"), *_added(installed), *SITE, *BOOTSTRAP])


@functools.cache
def _policies() -> Policies:
    return Policies(FILES["base/policies.yaml"])


def _written(kustomization: str) -> Iterator[Json]:
    path = MANIFESTS / kustomization
    for name in yaml.safe_load(path.read_text())["resources"]:
        yield from yaml.safe_load_all((path.parent / name).read_text())


def _added(installed: str) -> Iterator[Json]:
    for name in MORE[installed]:
        yield from yaml.safe_load_all((MANIFESTS / name).read_text())
