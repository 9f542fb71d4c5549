"""What pods of the model ask for, and the nodes that they ask it of: little enough to run short.

Of 6000 MiB, two have room on either kind of GPU; of 1000 MiB, cores or slots run out first. Some
ask in gpushare's words, for a share or for whole GPUs: both vocabularies draw on one ledger.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Final

import msgspec
import orjson

from allocator.catalog.vocabularies import GPUSHARE
from allocator.config.settings import DEFAULTS
from allocator.model.request import ContainerRequest, Mode, PodRequest
from tests.builders.gpunodes import NOON, Json
from tests.builders.model import A30, T4, ask, gpu, node, pod, snapshot
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, admitted, container, received
from tests.builders.pods import pod as manifest
from tests.model.cluster import World
from webhook.admission.context import AdmissionContext

Wish = PodRequest

NODES: Final = (
    node("n0", gpu(A30, mode=Mode.MIG)),
    node("n1", gpu(T4), replace(gpu(T4, index=1), slots=2), gpu(T4, index=2, mode=Mode.MPS)),
)
AROUND: Final = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(*NODES))
WEAK: Final = frozenset({"p0", "p1", "p2"})


def gpushare(*asks: ContainerRequest) -> Wish:
    """Return a request in gpushare's vocabulary, in GiB or for whole GPUs."""
    request = pod(*asks, mode=Mode.MEMORY_ONLY)
    return msgspec.structs.replace(request, vocabulary=GPUSHARE.name)


WISHES: Final[tuple[Wish, ...]] = (
    pod(ask(6000)),
    pod(ask(12000)),
    pod(ask(12000)),
    pod(ask(6000), mode=Mode.MIG),
    pod(ask(12000), mode=Mode.MIG),
    pod(ask(5000), ask(5000, name="second"), mode=Mode.MIG),
    pod(ask(6000), mode=Mode.HAMI_CORE),
    pod(ask(12000), mode=Mode.HAMI_CORE),
    pod(ask(1000)),
    pod(ask(1000), mode=Mode.HAMI_CORE),
    pod(ask(1000, cores=30)),
    pod(ask(1000, cores=60)),
    pod(ask(1000, cores=100)),
    pod(ask(6000, count=2)),
    pod(ask(1000, cores=60), ask(1000, name="second")),
    gpushare(ask(6 * 1024)),
    gpushare(ask(1024)),
    gpushare(ask(cores=100)),
    gpushare(ask(cores=100, count=2)),
    pod(ask(6000), mode=Mode.MPS),
    pod(ask(1000, cores=60), mode=Mode.MPS),
    pod(ask(12000), mode=Mode.MPS),
)


@lru_cache
def template(wish: int) -> bytes:
    """Return a pod as admission leaves it."""
    request = WISHES[wish]
    asking = [container(one.name, _limits(request, one)) for one in request.containers]
    named = request.mode is not None and request.vocabulary != GPUSHARE.name
    annotations = {MODE: str(request.mode)} if named else {}
    written = manifest(*asking, annotations=annotations)
    return orjson.dumps(admitted(received(written), AROUND))


def _limits(request: Wish, one: ContainerRequest) -> dict[str, object]:
    if request.vocabulary != GPUSHARE.name:
        return {NUMBER: one.count, MEMORY: one.memory, CORES: one.cores}
    if one.memory is None:
        return {str(GPUSHARE.count): one.count}
    return {str(GPUSHARE.memory): one.memory // GPUSHARE.memory_factor}


def live(world: World, name: str, generation: str) -> Json:
    """Return a new pod that asks for something; those of some names matter more than others."""
    wish = world.rng.randrange(len(WISHES))
    found: Json = orjson.loads(template(wish))
    uid = f"{name}-{generation}"
    created = (NOON + world.elapsed(0)).isoformat()
    found["metadata"] |= {"name": name, "uid": uid, "creationTimestamp": created}
    found["spec"]["priority"] = world.rng.choice((0, 5) if name in WEAK else (5, 10))
    world.asked[uid] = WISHES[wish]
    return found
