"""HAMi's scheduler, by its stand-in, on nodes of our agents: it sees, picks and binds as ever."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from allocator.catalog.hami_keys import (
    ALLOCATED_KEY,
    HANDSHAKE_ANNOTATION,
    LOCK_ANNOTATION,
    PHASE_KEY,
    REGISTER_ANNOTATION,
    TO_ALLOCATE_KEY,
)
from manifests.generator.policies import SCHEDULERS
from tests.builders.model import T4, nodes_of
from tests.cluster.api import ApiError, wait_for
from tests.cluster.binds import bind, promised, write
from tests.cluster.hami_site import annotation, calls_of, make, offer, serve_hami
from tests.cluster.installation import PODS, Installation, installation
from tests.harness.hami import HamiError, HamiScheduler

NODE = "gpu-1"
OTHER = "GPU-gpu-1-1"


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation that registers its node with HAMi's scheduler."""
    with installation(programs, tmp_path_factory.mktemp("hami-scheduler")) as found:
        serve_hami(found, "hamiRegister: true\nvocabularies: [volcano, hami]")
        found.add_node(nodes_of(2, T4, name=NODE))
        offer(found, NODE, "20")
        found.wait_for_models("T4")
        wait_for(lambda: annotation(found, NODE, REGISTER_ANNOTATION))
        yield found


@pytest.fixture
def team(site: Installation) -> Iterator[str]:
    """Yield a namespace of its own; its pods and entries go afterwards."""
    found = site.namespace()
    yield found
    site.api.delete(PODS.format(found), {"gracePeriodSeconds": 0})
    write(site, NODE, {"spec": {"entries": []}})


def annotations(site: Installation, team: str, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] = site.api.get(f"{PODS.format(team)}/{name}")["metadata"][
        "annotations"
    ]
    return found


def scheduler(site: Installation) -> HamiScheduler:
    return HamiScheduler(calls_of(site, SCHEDULERS[1]), now=lambda: datetime.now(UTC))


def test_it_finds_the_gpus_and_asks(site: Installation) -> None:
    """Every field is there; its question stays until an older release wants an answer."""
    found = scheduler(site)

    found.look()

    assert [(d["id"], d["devmem"], d["count"], d["health"]) for d in found.devices[NODE]] == [
        ("GPU-gpu-1-0", 15360, 10, True),
        (OTHER, 15360, 10, True),
    ]
    assert annotation(site, NODE, HANDSHAKE_ANNOTATION).startswith("Requesting_")


def test_what_it_picks_is_committed(site: Installation, team: str) -> None:
    """The pod is served at once, and its lock is free for the next one."""
    stored = make(site, team, "p")
    found = scheduler(site)
    found.look()
    found.devices[NODE].reverse()  # not what we would choose

    node = found.filter(stored, [(0, 0, 0), (1, 6000, 0), (0, 0, 0)])
    found.bind(stored, node)

    (entry,) = [e for e in promised(site, NODE) if e.namespace == team]
    assert [g.gpu for held in entry.containers for g in held.grants] == [OTHER]
    written = annotations(site, team, "p")
    assert written[PHASE_KEY] == "success"
    assert written[TO_ALLOCATE_KEY] == ";;;"
    assert written[ALLOCATED_KEY] == f";{OTHER},NVIDIA,6000,0:;;"
    wait_for(lambda: not annotation(site, NODE, LOCK_ANNOTATION))


def test_it_counts_pods_that_others_scheduled(site: Installation, team: str) -> None:
    """They carry its list, so nothing is taken off the register for them as well."""
    for number in range(4):
        make(site, team, f"p{number}", memory=7000)
        bind(site, team, f"p{number}", node=NODE)
    late = make(site, team, "late", memory=7000)
    # The leader may hear of an entry before it hears of the pod that carries it.
    wait_for(lambda: all(device["devmem"] == 15360 for device in json.loads(register(site))))
    found = scheduler(site)
    found.look()

    with pytest.raises(HamiError, match="no available node"):
        found.filter(late, [(0, 0, 0), (1, 7000, 0), (0, 0, 0)])


def register(site: Installation) -> str:
    return annotation(site, NODE, REGISTER_ANNOTATION)


def test_what_it_picks_twice_is_given_once(site: Installation, team: str) -> None:
    """Its memory is wrong after a restart; the second pod gets another GPU."""
    pods = [make(site, team, name, memory=9000) for name in ("p", "q")]
    found = scheduler(site)
    found.look()
    text = f";{OTHER},NVIDIA,9000,0:;;"
    for stored in pods:
        name = stored["metadata"]["name"]
        keys = {"hami.io/vgpu-node": NODE, ALLOCATED_KEY: text, TO_ALLOCATE_KEY: text}
        found.call("PATCH", f"{PODS.format(team)}/{name}", {"metadata": {"annotations": keys}})
        found.bind(stored, NODE)
        wait_for(lambda: not annotation(site, NODE, LOCK_ANNOTATION))

    lists = {annotations(site, team, name)[ALLOCATED_KEY] for name in ("p", "q")}
    assert lists == {text, text.replace(OTHER, "GPU-gpu-1-0")}


def test_a_node_that_offers_nothing_is_not_registered(site: Installation) -> None:
    """Else HAMi's scheduler would drop it and take it back, again and again."""
    offer(site, NODE, "0")
    wait_for(lambda: not register(site))
    found = scheduler(site)
    found.look()
    assert found.devices == {}

    offer(site, NODE, "20")
    wait_for(lambda: register(site))


def test_a_removed_register_comes_back(site: Installation) -> None:
    """HAMi's own plugin would not notice."""
    change = {"annotations": {REGISTER_ANNOTATION: None}}
    site.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": change})

    wait_for(lambda: register(site))


def test_hamis_plugin_on_our_node_closes_it(site: Installation, team: str) -> None:
    """Two plugins would give out the same GPUs, so the node takes no pods until one is gone."""
    ours = register(site)
    make(site, team, "p")
    theirs = {"annotations": {REGISTER_ANNOTATION: f"{ours} "}}
    site.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": theirs})

    assert wait_for(lambda: _refused(site, team)) == 409
    gone = {"annotations": {REGISTER_ANNOTATION: None}}
    site.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": gone})
    wait_for(lambda: register(site) == ours)
    bind(site, team, "p", node=NODE)


def _refused(site: Installation, team: str) -> int:
    """Return the status of a refused dry run, 0 where it passes yet."""
    try:
        bind(site, team, "p", node=NODE, dryRun="All")
    except ApiError as error:
        return error.status
    return 0
