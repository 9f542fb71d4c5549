"""Memory of a replica that knows pods that wait for a node, each as large as etcd stores any."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.hostile_site import HostileSite, hostile_site
from tests.fakes.api_objects import parsed

Json = dict[str, Any]
FIRST: Final = 200  # pods, after which buffers are as large as they get
COLLECTION: Final = parsed("/api/v1/namespaces/team-a/pods")
SIZE: Final = 1_400_000  # bytes of each
NOISE: Final = 0.5  # MiB that are no growth
SETTLED: Final = 3.0  # seconds without growth, after which nothing more is being read
LIMITS: Final = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}
# One text for all of them: the memory of this process is no matter here.
_LONG: Final = "x" * (SIZE - 2000)
_VARIABLES: Final = [{"name": f"V{n}", "value": "x" * 300} for n in range(SIZE // 340)]
_COMMAND: Final = ["x"] * (SIZE // 5)


def _pod(number: int) -> Json:
    main: Json = {"name": "main", "image": "i", "resources": {"limits": LIMITS}}
    metadata: Json = {"name": f"waits-{number}"}
    match number % 3:
        case 0:
            metadata["annotations"] = {"a": _LONG}
        case 1:
            main["env"] = _VARIABLES
        case _:
            main["command"] = _COMMAND
    spec = {"containers": [main], "schedulerName": "default-scheduler"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGrowth:
    """By how many MiB a replica grew: with the first such pods, for buffers, and with more."""

    first_mib: float
    more_mib: float


async def pending_growth(pods: int) -> PendingGrowth:
    """Let a running replica learn of some pods, and then of so many *pods* more."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        async with hostile_site(Path(folder), "--extender=127.0.0.1:0") as site:
            sizes = [await _settled(site)]
            for numbers in (range(FIRST), range(FIRST, FIRST + pods)):
                for number in numbers:
                    site.server.objects.create(COLLECTION, _pod(number))
                    await asyncio.sleep(0.01)  # so that a watch can be told in between
                sizes.append(await _settled(site))
    return PendingGrowth(first_mib=sizes[1] - sizes[0], more_mib=sizes[2] - sizes[1])


async def _settled(site: HostileSite) -> float:
    """Return the memory of the replica once it stays as it is."""
    loop = asyncio.get_running_loop()
    last, since = site.rss_mib(), loop.time()
    while loop.time() - since < SETTLED:
        await asyncio.sleep(0.2)
        now = site.rss_mib()
        if abs(now - last) > NOISE or any(not s.empty() for s in site.server.streams):
            last, since = now, loop.time()
    return last
