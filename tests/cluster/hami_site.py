"""An installation that serves HAMi's vocabulary, and calls of HAMi's programs in their own name."""

import http
from typing import Any

from allocator.catalog.conditions import is_ours
from allocator.catalog.hami_keys import COUNT_RESOURCE
from allocator.catalog.vocabularies import HAMI, VOCABULARIES
from manifests.generator.policies import policies
from manifests.generator.registrations import registrations
from tests.builders.pods import container, pod
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.installation import Installation
from tests.cluster.site import Who
from tests.harness.hami import Call

GROUP = "/apis/admissionregistration.k8s.io/v1"
GPUMEM = "nvidia.com/gpumem"
_BASE = is_ours("r")
_WITH_HAMI = is_ours("r", (*VOCABULARIES, HAMI))


def serve_hami(site: Installation, settings: str) -> None:
    """Do what an administrator does: add the component ``hami``, and write *settings*."""
    for document in (*registrations(), *policies()):
        kind, name = document["kind"], document["metadata"]["name"]
        plural = f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"
        path = f"{GROUP}/{plural}/{name}"
        wait_for(lambda path=path: _rewrite(site, path))  # type: ignore[misc]
    site.configure(settings)


def _rewrite(site: Installation, path: str) -> bool:
    """Add HAMi's names to the conditions of an object; say whether nobody was quicker."""
    stored = site.api.get(path)
    try:
        site.api.replace(path, _replaced(stored))
    except ApiError as error:
        if error.status != http.HTTPStatus.CONFLICT:
            raise
        return False
    return True


def _replaced(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    match value:
        case str():
            return value.replace(_BASE, _WITH_HAMI)
        case dict():
            return {key: _replaced(inner) for key, inner in value.items()}
        case list():
            return [_replaced(inner) for inner in value]
        case _:
            return value


def offer(site: Installation, node: str, amount: str) -> None:
    """Have kubelet offer HAMi's resource, as a device plugin or our agent makes it do."""
    offered = {"capacity": {COUNT_RESOURCE: amount}, "allocatable": {COUNT_RESOURCE: amount}}
    site.api.patch(f"/api/v1/nodes/{node}/status", {"status": offered})


def annotation(site: Installation, node: str, key: str) -> str:
    """Return an annotation of a Node; empty where it has none."""
    metadata = site.api.get(f"/api/v1/nodes/{node}")["metadata"]
    return str(metadata.get("annotations", {}).get(key, ""))


def calls_of(site: Installation, user: str) -> Call:
    """Return calls in the name of *user*, which has all rights that no policy takes."""
    headers = Who(user).headers

    def call(method: str, path: str, body: Json | None) -> Json:
        media = {"Content-Type": MERGE} if method == "PATCH" else {}
        return site.api.request(method, path, body, headers={**headers, **media}).body

    return call


def make(site: Installation, team: str, name: str, *, memory: int = 6000) -> Json:
    """Create a pod of three containers, of which one asks in HAMi's words."""
    asking = container("main", {COUNT_RESOURCE: 1, GPUMEM: memory})
    written = pod(asking, container("side"), initContainers=[container("init")])
    return site.stored(team, written | {"metadata": {**written["metadata"], "name": name}})
