"""Closes the node in the ledger while its agent is gone, so that no pod is bound to it."""

from typing import Final

import structlog

from allocator.cluster.inventory import GPU_NODES
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import InvalidError, KubeError, NotFoundError

RETRY_SECONDS: Final = 1.0
log = structlog.get_logger(__name__)


async def close_node(api_client: ApiClient, node: str, *, clock: Clock = SYSTEM) -> None:
    """Remove the inventory of *node*; try again until that is done or the task is cancelled.

    Every bind to the node is then refused for a while. The next agent writes the inventory again,
    also when this call overtakes it.
    """
    ops = ({"op": "remove", "path": "/status/inventory"},)
    while True:
        try:
            await api_client.json_patch(f"{GPU_NODES}/{node}/status", ops)
        except (InvalidError, NotFoundError):
            return  # it is closed, or there is nothing to close
        except KubeError as error:
            log.warning("GPUNode not closed", why=str(error))
        else:
            log.info("closed the node until its agent is back", node=node)
            return
        await clock.sleep(RETRY_SECONDS)
