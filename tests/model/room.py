"""Whether a node has room for a pod in truth: what a refusal is held to (L1)."""

import orjson

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.core.choose import PlacementPolicy, in_mode, place_on
from allocator.core.commitment import PodClaim
from allocator.core.ledger import node_for, parse_ledger
from allocator.core.positions import keep_volcano_positions
from tests.gpunodes import Json
from webhook.core.mutate import AdmissionContext
from webhook.core.unbound import unbound_pod


def fits(pod: Json, stored: Json, around: AdmissionContext) -> bool:
    """Say whether *pod* has room on the node whose GPUNode is *stored*."""
    wanted, ledger = unbound_pod(orjson.dumps(pod), VOCABULARIES).wanted, parse_ledger(stored)
    if ledger.closed or not isinstance(wanted, PodClaim):
        return False
    node = keep_volcano_positions(
        node_for(ledger, wanted.uid), around.snapshot.nodes.get(ledger.name)
    )
    terms = PlacementPolicy(prefer=around.settings.prefer, geometries=around.geometries)
    return place_on(node, in_mode(wanted.request, wanted.mode), terms=terms) is not None
