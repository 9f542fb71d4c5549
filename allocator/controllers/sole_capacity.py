"""Notes which resources only our agents offer, so that the API server refuses who asks past us.

A pod that asks for one of them can run on our nodes alone. In a namespace without the label
nothing limits it there, and a policy refuses it (docs/policies.md). Resources that another device
plugin offers on some node are left out: they may be meant for that node.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec
import structlog

from allocator.catalog.keys import SOLE_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.controllers.match_conditions import GROUP, REGISTRATION
from allocator.ledger.lifecycle import NodeIdentity
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import NotFoundError

SWEEP_SECONDS: Final = 10.0  # between sweeps; somebody may have replaced the configuration
# Seconds for which a change must last. Device plugins restart, and a Node shows the slots of a new
# agent a moment before the agent's note of them.
LASTING_SECONDS: Final = 30.0
_PATH: Final = f"/apis/{GROUP}/validatingwebhookconfigurations/{REGISTRATION}"
log = structlog.get_logger(__name__)


class OfferCaches(Protocol):
    """The cached Nodes."""

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        """Return all Nodes by name, ``None`` while not all are known."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None
    resource_version: str = ""


class _Configuration(msgspec.Struct, frozen=True):
    metadata: _Metadata


_DECODER: Final = msgspec.json.Decoder(_Configuration)


def sole_resources(
    nodes: Iterable[NodeIdentity], vocabularies: Iterable[Vocabulary]
) -> frozenset[str]:
    """Return the resources of *vocabularies* that our agents offer, and nobody else."""
    ours: set[str] = set()
    others: set[str] = set()
    for node in nodes:
        ours |= node.offered & node.added
        others |= node.offered - node.added
    names = {name for vocabulary in vocabularies for name in vocabulary.resources}
    return frozenset(names & ours - others)


class SoleCapacityController:
    """Keeps the note up to date."""

    def __init__(
        self,
        client: ApiClient,
        caches: OfferCaches,
        *,
        vocabularies: Callable[[], Iterable[Vocabulary]],
        upstream: Callable[[], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *client*; with *upstream* another plugin serves all nodes."""
        self._client = client
        self._caches = caches
        self._vocabularies = vocabularies
        self._upstream = upstream
        self._clock = clock
        self._seen: tuple[str, float] = "", 0.0  # the last text, and monotonic since when

    async def sweep(self) -> None:
        """Note what has lasted; raises :class:`kube.errors.KubeError`."""
        nodes = self._caches.node_identities()
        if nodes is None:
            return
        found = (
            frozenset()
            if self._upstream()
            else sole_resources(nodes.values(), self._vocabularies())
        )
        text, now = ",".join(sorted(found)), self._clock.monotonic()
        if text != self._seen[0] or not self._seen[1]:
            self._seen = text, now
        if now - self._seen[1] < LASTING_SECONDS:
            return
        try:
            body = await self._client.get(_PATH)
        except NotFoundError:
            return  # uninstalled, or the site calls it otherwise
        metadata = _DECODER.decode(body).metadata
        if (metadata.annotations or {}).get(SOLE_KEY, "") != text:
            await self._write(text, metadata)

    async def _write(self, text: str, metadata: _Metadata) -> None:
        changes = {
            "metadata": {
                "resourceVersion": metadata.resource_version,
                "annotations": {SOLE_KEY: text or None},
            }
        }
        await self._client.merge_patch(_PATH, changes)
        log.info("resources that only our agents offer", names=text)
