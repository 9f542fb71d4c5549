"""A program that writes audit records to a console until it is killed.

It prints the number of each record once the delivery has taken it to its outbox.
"""

import asyncio
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from allocator.cli.audit import AuditOptions, audit_delivery
from allocator.delivery.delivery_metrics import DeliveryMetrics
from tests.harness.lines import lines_of


async def send(url: str, files: Path, spool: Path) -> None:
    options = AuditOptions(url=url, certificates=files, token=files / "token", spool=spool)
    metrics = DeliveryMetrics(CollectorRegistry())
    async with audit_delivery(options, metrics) as (delivery,):
        number = 0
        while True:
            delivery.write(lines_of(b'{"id":"%d"}\n' % number))
            number += 1
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(send(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
