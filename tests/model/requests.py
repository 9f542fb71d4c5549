"""What pods of the model ask for, and the nodes that they ask it of: little enough to run short.

Of 6000 MiB, two have room on either kind of GPU; of 1000 MiB, cores or slots run out first. Some
ask in gpushare's words, for a share or for whole GPUs: both vocabularies draw on one ledger.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Final

import msgspec
import orjson

from allocator.catalog.vocabularies import GPUSHARE, METAX_SGPU, VOCABULARIES, Vocabulary
from allocator.config.settings import DEFAULTS
from allocator.model.gpu import Node
from allocator.model.request import METAX, ContainerRequest, Mode, PodRequest
from allocator.model.sharing import DEFAULT_POLICY, QosPolicy, ShareClass
from allocator.model.units import MiB
from tests.builders.gpunodes import NOON, Json
from tests.builders.model import A30, T4, ask, gpu, node, pod, snapshot
from tests.builders.pods import MODE, admitted, container, received
from tests.builders.pods import pod as manifest
from tests.model.cluster import World
from webhook.admission.context import AdmissionContext

Wish = PodRequest

# A GPU of MetaX's that its driver divides; it has a model of its own, so that no other is like it.
_C500: Final = replace(
    gpu(T4), model="C500", memory=MiB(16 * 1024), mode=Mode.SGPU, slots=16, family=METAX
)
NODES: Final = (
    node("n0", gpu(A30, mode=Mode.MIG)),
    node("n1", gpu(T4), replace(gpu(T4, index=1), slots=2), gpu(T4, index=2, mode=Mode.MPS)),
)
METAX_NODE: Final = node("n2", replace(_C500, slots=2), replace(_C500, index=1))
EVERY_NODE: Final = (*NODES, METAX_NODE)
AROUND: Final = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(*EVERY_NODE))
WEAK: Final = frozenset({"p0", "p1", "p2"})


def metax(*asks: ContainerRequest, policy: QosPolicy = DEFAULT_POLICY) -> Wish:
    """Return a request for shares of MetaX's GPUs, of one policy."""
    shared = [msgspec.structs.replace(one, share=str(ShareClass(policy))) for one in asks]
    request = pod(*shared, mode=Mode.SGPU)
    return msgspec.structs.replace(request, vocabulary=METAX_SGPU.name, family=METAX)


def gpushare(*asks: ContainerRequest) -> Wish:
    """Return a request in gpushare's vocabulary, in GiB or for whole GPUs."""
    request = pod(*asks, mode=Mode.MEMORY_ONLY)
    return msgspec.structs.replace(request, vocabulary=GPUSHARE.name)


_OF_NVIDIA: Final[tuple[Wish, ...]] = (
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
_OF_METAX: Final = (
    metax(ask(6 * 1024, cores=30)),
    metax(ask(6 * 1024, cores=30), policy=QosPolicy.FIXED_SHARE),
    metax(ask(12 * 1024, cores=60, count=2)),
    metax(ask(cores=100)),
)
WISHES: Final[tuple[Wish, ...]] = (*_OF_NVIDIA, *_OF_METAX)
_PLAIN: Final = len(_OF_NVIDIA)
_VOCABULARIES: Final = {one.name: one for one in VOCABULARIES}


@lru_cache
def template(wish: int) -> bytes:
    """Return a pod as admission leaves it."""
    request = WISHES[wish]
    vocabulary = _VOCABULARIES[request.vocabulary]
    asking = [container(one.name, _limits(vocabulary, one)) for one in request.containers]
    annotations = {}
    if request.mode is not None and request.mode is not vocabulary.mode:
        annotations[MODE] = str(request.mode)
    if vocabulary.share_keys is not None:
        annotations[vocabulary.share_keys.policy] = request.containers[0].share
    written = manifest(*asking, annotations=annotations)
    return orjson.dumps(admitted(received(written), AROUND))


def _limits(vocabulary: Vocabulary, one: ContainerRequest) -> dict[str, int]:
    """Return what a container asks for in the words of its vocabulary."""
    memory = None if one.memory is None else one.memory // vocabulary.memory_factor
    # A count of whole GPUs goes with no amount, and an amount of gpushare's with no count.
    whole = vocabulary.whole and memory is None
    amounts = {
        vocabulary.count: None if vocabulary.whole and not whole else one.count,
        vocabulary.memory: memory,
        vocabulary.cores: None if vocabulary.whole else one.cores,
    }
    return {str(name): amount for name, amount in amounts.items() if amount is not None}


def nodes_of(world: World) -> tuple[Node, ...]:
    """Return the nodes of *world*."""
    return EVERY_NODE if world.metax else NODES


def names_of(world: World) -> tuple[str, ...]:
    """Return the names of the nodes of *world*."""
    return tuple(one.name for one in nodes_of(world))


def live(world: World, name: str, generation: str) -> Json:
    """Return a new pod that asks for something; those of some names matter more than others."""
    wish = world.rng.randrange(len(WISHES) if world.metax else _PLAIN)
    found: Json = orjson.loads(template(wish))
    uid = f"{name}-{generation}"
    created = (NOON + world.elapsed(0)).isoformat()
    found["metadata"] |= {"name": name, "uid": uid, "creationTimestamp": created}
    found["spec"]["priority"] = world.rng.choice((0, 5) if name in WEAK else (5, 10))
    world.asked[uid] = WISHES[wish]
    return found
