"""Ten thousand bad payloads on every endpoint of a replica, over HTTP as its callers send them."""

import asyncio
import copy
import random
from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pytest

from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.cluster.inventory import GPU_NODES
from allocator.ledger.reclaim import MOST_PROMISES
from tests.builders.pods import Json
from tests.fakes.api_objects import Place, parsed
from tests.fakes.api_server import ApiServer
from tests.integration.webhook.endpoints import ENDPOINTS, Endpoint, good_question
from tests.integration.webhook.hostile import (
    ASKED,
    WAITING,
    Site,
    binding_review,
    payloads,
    peopled,
    readable,
)
from tests.integration.webhook.replica import FULL, Ports, cluster, kept, parts, replica
from tests.integration.webhook.talking import said
from tests.integration.webhook.verdicts import Said, patched

SEED: Final = 20261122
PAYLOADS: Final = 10_000
CONNECTIONS: Final = 20
BOOKKEEPING: Final = {"metadata.resourceVersion", "metadata.generation", "metadata.managedFields"}
# What is kept only until somebody's turn has come, or for some seconds.
PASSING: Final = (
    "UnschedulableController._queued",
    "CommitQueues._queues",
    "GangController._refusals",
    "AuditLog._deferred",
    "Recorder._waiting",
    "AssumedPods._assumed",
    "AssumedPods._nodes",
)
MOST: Final = {  # the bounds of what is remembered
    "UnschedulableController._records": 1024,
    "WebhookMetrics._children": 10_000,
    "WebhookMetrics._namespaces": 1000,
    "Recorder._series": 1024,
    "Recorder._spent": 1024,
    "UnschedulablePod.failures": 128,  # of the pod that was looked after last
    "memory": 4096,
    "SeenNames._hashes": 4096,
}
FEW: Final = 64  # of everything else: nodes, pods, vocabularies, settings


Promises = Mapping[tuple[str, str], list[Json]]  # by node and uid


async def bombarded(
    ports: Ports, path: str, bodies: Sequence[bytes], *, fine: bytes, rng: random.Random
) -> list[Said]:
    """Send *bodies* down some connections at a time, a good one first and last on each."""
    endpoint = ENDPOINTS[path]
    port: int = getattr(ports, endpoint.port)
    shares = [[fine, *bodies[at::CONNECTIONS], fine] for at in range(CONNECTIONS)]
    talks = (said(port, path, share, rng=rng, tries=endpoint.tries) for share in shares)
    found = await asyncio.gather(*talks)
    for share in found:
        for told in (share[0], share[-1]):
            assert told.status == 200, told
            assert endpoint.fine(orjson.loads(told.answer)), told
    return [told for share in found for told in share]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_ten_thousand_bad_payloads(path: str) -> None:
    """Each is answered as its protocol has it, and nothing is left over but what was allowed."""
    endpoint, others = ENDPOINTS[path], parts()
    rng = random.Random(f"{SEED}{path}")  # noqa: S311 -- payloads, no secrets

    async def scenario() -> None:
        async with ApiServer() as server:
            site = peopled(server)
            cluster(server, site.pods["bound"]["metadata"]["uid"])
            before = copy.deepcopy(server.objects.kept)
            bodies = list(payloads(endpoint.bases(site, rng), rng, PAYLOADS))
            fine = orjson.dumps(endpoint.good(site))
            async with replica(server) as ports:
                found = await bombarded(ports, path, bodies, fine=fine, rng=rng)
                for told in found:
                    judged(endpoint, told)
                left = await settled(ports, site, others)
                if path == "/mutate/bindings":
                    found += await bound_once_more(ports, site, rng)
                await bombarded(ports, path, [], fine=fine, rng=rng)
            written = [request for request in server.requests if request.method != "GET"]
            assert all(map(endpoint.writes, written)), written
            changed = changes(before, server.objects.kept)
            assert changed <= {*BOOKKEEPING, *endpoint.changes}
            if path == "/mutate/bindings":
                kept_to(promises(server), promised_by(found), site)
            assert {place: n for place, n in left.items() if n > MOST.get(place, FEW)} == {}

    asyncio.run(scenario())


async def bound_once_more(ports: Ports, site: Site, rng: random.Random) -> list[Said]:
    """Bind each waiting pod while nothing else happens, and return the answers.

    On a busy machine a commit may land after its review was answered with "try again", and
    leave a pod with an entry too many. Its next bind takes that away.
    """
    bodies = [orjson.dumps(binding_review(site, rng, 0, pod=name)) for name in WAITING]
    return await said(ports.admission, "/mutate/bindings", bodies, rng=rng, tries=10)


def judged(endpoint: Endpoint, told: Said) -> None:
    """Judge one answer, and show it whole where it is not as it should be."""
    try:
        endpoint.judge(told)
    except Exception as error:
        error.add_note(f"seed {SEED}: {told}")
        raise


async def settled(ports: Ports, site: Site, others: Sequence[object]) -> Mapping[str, int]:
    """Return what is kept once everybody whose turn will come has had it."""
    question = orjson.dumps(good_question(site))
    rng = random.Random(SEED)  # noqa: S311 -- payloads, no secrets
    left: Mapping[str, int] = {}

    async with asyncio.timeout(150):  # who waits is looked at again after up to 39 s
        while not left or any(left.get(place) for place in PASSING):
            await asyncio.sleep(0.5)
            await said(
                ports.extender, "/extender/filter", [question], rng=rng
            )  # looks who is underway
            left = kept(others)
            assert left.keys() >= set(PASSING)
    return left


def changes(before: Mapping[Place, Json], now: Mapping[Place, Json]) -> set[str]:
    """Return which fields of objects that there were are others now; Events are new ones."""
    found = {f"{place.resource} came" for place in now.keys() - before.keys()} - {"events came"}
    found |= {f"{place.resource} went" for place in before.keys() - now.keys()}
    for place in before.keys() & now.keys():
        for part in ("metadata", "spec", "status", "data"):
            old, new = before[place].get(part, {}), now[place].get(part, {})
            keys = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            found |= {f"{part}.{key}" for key in keys}
    return found


def kept_to(now: Promises, told: Mapping[tuple[str, str], list[list[Json]]], site: Site) -> None:
    """Assert that nodes promise what was answered, to pods that wait, and what these ask for.

    A pod keeps two of them at most, whatever it was answered, and loses none before that.
    """
    bound = site.pods["bound"]["metadata"]["uid"]
    waiting = {site.pods[name]["metadata"]["uid"] for name in WAITING}
    mine = {place: containers for place, containers in now.items() if place != (FULL, bound)}
    assert len(now) - len(mine) == 1
    assert mine
    assert mine.keys() <= told.keys()
    for uid in waiting:
        nodes = len([place for place in told if place[1] == uid])
        assert len([place for place in mine if place[1] == uid]) == min(nodes, MOST_PROMISES)
    for (node, uid), containers in mine.items():
        assert containers in told[node, uid]
        assert uid in waiting
        ((grant,),) = [one["devices"] for one in containers]
        assert grant["memoryMiB"] == ASKED


def promises(server: ApiServer) -> Promises:
    """Return what each node promises each pod."""
    return {
        (found["metadata"]["name"], entry["pod"]["uid"]): entry["containers"]
        for found in server.objects.at(parsed(GPU_NODES))
        for entry in found["spec"]["entries"]
    }


def promised_by(found: Sequence[Said]) -> dict[tuple[str, str], list[list[Json]]]:
    """Return what answers said that a node promises a pod."""
    said: dict[tuple[str, str], list[list[Json]]] = {}
    for told in found:
        sent = readable(told.body)
        response = orjson.loads(told.answer)["response"] if told.status == 200 else {}
        ops = patched(response)
        if "/metadata/uid" in ops and not (sent and sent["request"].get("dryRun")):
            brought = {**ops.get("/metadata/annotations", {})}
            brought |= {
                path.rpartition("/")[2].replace("~1", "/"): value for path, value in ops.items()
            }
            place = (brought["volcano.sh/vgpu-node"], ops["/metadata/uid"])
            said.setdefault(place, []).append(orjson.loads(brought[ASSIGNMENT_KEY]))
    return said
