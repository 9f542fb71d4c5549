"""From one agent of a node to the next: the node takes no bind while neither serves kubelet.

Kubelet fails a pod for good (``UnexpectedAdmissionError``) that it admits while no plugin serves.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final

import structlog

from agent.node.node_informer import NodeInformer
from agent.node.status import awaits_admission
from agent.node.status_controller import StatusController
from kube.errors import KubeError

HANDOVER_SECONDS: Final = 6.0  # for the pods on their way, of the DaemonSet's grace period of 20
POLL_SECONDS: Final = 0.1  # between looks at them
log = structlog.get_logger(__name__)


async def hand_over(status_controller: StatusController, informer: NodeInformer) -> None:
    """Close the node, and return once kubelet has decided about the pods that were bound before.

    Call it while the plugin still serves. The next agent opens the node.
    """
    status_controller.stopping = True
    try:
        async with asyncio.timeout(HANDOVER_SECONDS):
            stored_gpu_node = await status_controller.close_node()
            while stored_gpu_node is not None and awaits_admission(
                stored_gpu_node.ledger, datetime.now(UTC)
            ):
                await asyncio.sleep(POLL_SECONDS)
                stored_gpu_node = informer.gpu_node
    except (KubeError, TimeoutError) as error:
        log.warning("stopping although pods may still arrive", why=str(error) or "timeout")


async def close_left_open(status_controller: StatusController, informer: NodeInformer) -> None:
    """Close a node that an agent left open which was killed; call it before serving kubelet."""
    changed = informer.subscribe()
    while not informer.is_configured or informer.gpu_node is None:
        await changed.wait()
        changed.clear()
    try:
        await status_controller.close_node()
    except KubeError as error:  # the status that is due next closes it too
        log.warning("GPUNode not closed", why=str(error))
