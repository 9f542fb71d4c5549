"""Whether a node has room for a pod in truth: what a refusal is held to (L1)."""

import orjson

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.ledger.assign import PodClaim
from allocator.ledger.ledger import node_for, parse_ledger
from allocator.mig.positions import keep_volcano_positions
from allocator.placement.choose import PlacementPolicy, in_mode, place_on
from tests.builders.gpunodes import Json
from webhook.admission.context import AdmissionContext
from webhook.binding.scheduler_pod import unbound_pod


def fits(pod: Json, stored: Json, around: AdmissionContext) -> bool:
    """Say whether *pod* has room on the node whose GPUNode is *stored*."""
    wanted, ledger = unbound_pod(orjson.dumps(pod), VOCABULARIES).claim, parse_ledger(stored)
    if ledger.closed or not isinstance(wanted, PodClaim):
        return False
    node = keep_volcano_positions(
        node_for(ledger, wanted.uid), around.snapshot.nodes.get(ledger.name)
    )
    policy = PlacementPolicy(prefer=around.settings.prefer, geometries=around.geometries)
    return place_on(node, in_mode(wanted.request, wanted.mode), policy=policy) is not None
