"""Whether a node has room for a pod in truth: what a refusal is held to (L1)."""

import orjson

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.core.choose import Terms, fitting, in_mode
from allocator.core.commitment import Wanted
from allocator.core.ledger import node_for, read
from allocator.core.positions import counted_as
from tests.gpunodes import Json
from webhook.core.mutate import Surroundings
from webhook.core.unbound import unbound


def fits(pod: Json, stored: Json, around: Surroundings) -> bool:
    """Say whether *pod* has room on the node whose GPUNode is *stored*."""
    wanted, ledger = unbound(orjson.dumps(pod), VOCABULARIES).wanted, read(stored)
    if ledger.closed or not isinstance(wanted, Wanted):
        return False
    node = counted_as(node_for(ledger, wanted.uid), around.snapshot.nodes.get(ledger.name))
    terms = Terms(prefer=around.settings.prefer, geometries=around.geometries)
    return fitting(node, in_mode(wanted.request, wanted.mode), terms=terms) is not None
