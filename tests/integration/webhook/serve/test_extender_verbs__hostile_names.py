"""What the extender writes on a stranger's word stays where such things belong."""

import asyncio
import copy
import random
from typing import Final

import orjson
import pytest

from tests.builders.pods import Json
from tests.fakes.api_server import ApiServer, Request
from tests.integration.waiting import until
from tests.integration.webhook.endpoints import EVENT, HINT, good_preemption
from tests.integration.webhook.hostile import HARMFUL, WAITING, Site, peopled
from tests.integration.webhook.replica import FULL, Ports, cluster, replica
from tests.integration.webhook.talking import said

FAR: Final = [f"far-{number}" for number in range(120)]  # unknown; n0 to n3 would do


def question(site: Site, names: list[str], **metadata: str) -> bytes:
    """Return what a scheduler asks about a pod that waits, or says that it is another."""
    found = copy.deepcopy(site.pods[WAITING[0]])
    found["metadata"] |= metadata
    return orjson.dumps({"Pod": found, "Nodes": None, "NodeNames": names})


async def asked(ports: Ports, verb: str, *bodies: bytes) -> list[Json]:
    rng = random.Random(0)  # noqa: S311 -- no secrets
    found = await said(ports.extender, f"/extender/{verb}", bodies, rng=rng)
    assert {told.status for told in found} == {200}
    return [orjson.loads(told.answer) for told in found]


def writes_after(names: list[str], **metadata: str) -> list[Request]:
    """Return what is written after a question of a forged pod, and one of a true one after it."""

    async def scenario() -> list[Request]:
        async with ApiServer() as server:
            site = peopled(server)
            cluster(server, site.pods["bound"]["metadata"]["uid"])
            async with replica(server) as ports:
                forged = question(site, names, **metadata)
                await asked(ports, "filter", forged, question(site, [FULL]))
                true = site.pods[WAITING[0]]["metadata"]["uid"].encode()
                await until(lambda: [r for r in written(server) if true in r.body])
                return written(server)

    return asyncio.run(scenario())


def written(server: ApiServer) -> list[Request]:
    return [request for request in server.requests if request.method != "GET"]


@pytest.mark.parametrize("namespace", HARMFUL[:4], ids=["up", "query", "elsewhere", "escaped"])
def test_an_event_goes_to_no_other_collection(namespace: str) -> None:
    """A namespace of a question may be part of a path only where it is a name."""
    found = writes_after([FULL], namespace=namespace, uid="another")

    assert [request.path for request in found if not EVENT.fullmatch(request.path)] == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("../../../../../apis/vgpu-admission.io/v1alpha1/gpunodes/n0", id="elsewhere"),
        pytest.param("waits-1?dryRun=All#", id="query"),
    ],
)
def test_a_hint_goes_to_no_other_object(name: str) -> None:
    """The same, of a pod's name."""
    found = writes_after(FAR, name=name, uid="another")

    hints = [request for request in found if request.method == "PATCH"]
    assert [hint.path for hint in hints if not HINT.fullmatch(hint.path)] == []


def test_a_hint_has_a_precondition() -> None:
    """Whoever does not know a pod's uid cannot have it nominated."""
    found = writes_after(FAR, name=WAITING[1], uid="")

    hints = [orjson.loads(request.body) for request in found if request.method == "PATCH"]
    assert [hint for hint in hints if not hint["metadata"]["uid"]] == []


@pytest.mark.parametrize("number", [2**70, -1], ids=["huge", "negative"])
def test_a_number_of_violations_fits_where_it_goes(number: int) -> None:
    """The scheduler reads 64 bits, and would drop the whole answer for one number beyond."""

    async def scenario() -> tuple[int, bytes]:
        async with ApiServer() as server:
            site = peopled(server)
            cluster(server, site.pods["bound"]["metadata"]["uid"])
            async with replica(server) as ports:
                body = orjson.dumps(good_preemption(site)).replace(FULL.encode(), b"n0")
                odd = body.replace(b'Violations":0', b'Violations":%d' % number)
                rng = random.Random(0)  # noqa: S311 -- no secrets
                (found,) = await said(ports.extender, "/extender/preempt", [odd], rng=rng)
                return found.status, found.answer

    status, answer = asyncio.run(scenario())

    assert status == 400
    assert b"NumPDBViolations" in answer
