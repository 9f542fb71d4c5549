"""A replica's own caches: every object as it was at some moment since it was last looked at."""

from dataclasses import dataclass, field

import orjson

from allocator.core.ledger import Ledger, read
from tests.gpunodes import Json
from tests.model.world import World
from webhook.core.bindingreview import LivePod, live_pod

NEWS = 0.3  # how likely a watch has caught up when the cache is asked


@dataclass(slots=True)
class Cache:
    """What one replica knows of GPUNodes, and of pods without a node; it may be long out of date.

    A pod that was bound or deleted since is still there as it was: its watch is late.
    """

    world: World
    gpu_nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)

    def ledger(self, name: str) -> Ledger | None:
        """Return a ledger as the watch has seen it."""
        found = self._seen(self.gpu_nodes, self.world.gpu_nodes, name)
        return None if found is None else read(found)

    def pod(self, _namespace: str, name: str) -> LivePod | None:
        """Return a pod as the watch has seen it."""
        found = self._seen(self.pods, self.world.pods, name)
        return None if found is None else live_pod(orjson.dumps(found))

    def _seen(self, known: dict[str, Json], now: dict[str, Json], name: str) -> Json | None:
        if name in now and (name not in known or self.world.rng.random() < NEWS):
            known[name] = now[name]  # which is replaced, never edited
        return known.get(name)
