"""Several replicas, or one under strain: the same answers, no lost connection, no lost pod."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allocator.model.request import Mode
from tests.builders.model import A30, A100_40, A100_80, H100, T4, nodes_of
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, PERCENT, container, pod, received
from tests.cluster.api import Json, wait_for
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import PODS, Installation, installation, sample
from tests.cluster.load import THREADS, Load
from tests.properties.test_hostile_reviews import PATHS, review

MODELS = ("A30", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100", "T4")
# Not in the order of their names, so that a watch and a list tell of them in different orders.
NODES = (
    nodes_of(4, T4, name="z"),
    nodes_of(8, A100_40, mode=Mode.MIG, name="b"),
    nodes_of(8, A100_80, name="y"),
    nodes_of(8, H100, mode=Mode.MIG, name="c"),
    nodes_of(2, A30, mode=Mode.MIG, name="a"),
)
SAMPLES = ("01-three-gigabytes", "04-two-gpus", "06-gpushare", "09-lifts-its-limit", "10-no-gpu")
# Enough to reach a server in more than one piece.
BULK = [{"name": f"V{i}", "value": "x" * 4000} for i in range(60)]


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield two replicas, of which the second came when the GPUs were there already."""
    folder = tmp_path_factory.mktemp("replicas")
    with installation(programs, folder) as found:
        for node in NODES:
            found.add_node(node)
        found.wait_for_models(*MODELS)
        found.add_replica().start()
        found.wait_for_models(*MODELS)
        yield found


def shapes() -> Iterator[Json]:
    """Yield pods whose decisions rest on settings and on all that the fleet has."""
    yield from map(sample, SAMPLES)
    for memory in (1000, 5000, 12000, 24000, 48000, 90000):
        for cores in (0, 30, 100):
            yield pod(container(limits={NUMBER: 1, MEMORY: memory, CORES: cores}))
    for model in (*MODELS, "none-such"):
        limits = {NUMBER: 2, PERCENT: 40}
        yield pod(container(limits=limits), annotations={"nvidia.com/use-gputype": model})
    yield pod(container("a"), container("b", {NUMBER: 9}), annotations={MODE: "mig"})
    yield pod(container("a"), container("b", {NUMBER: 1, MEMORY: "8Gi"}))


@pytest.mark.parametrize("settings", ["", "fleet: closed", "prefer: density\nnodeAgent: upstream"])
def test_replicas_agree_byte_for_byte(site: Installation, settings: str) -> None:
    """Whichever is asked, in whatever order it learned what it knows, the answer is the same."""
    site.configure(settings)
    wait_for(lambda: all(replica.obeys(settings) for replica in site.replicas))

    for written in shapes():
        for path in PATHS:
            body = review(received(written), dryRun=True)
            first, second = (replica.review(path, body) for replica in site.replicas)
            assert first == second


def test_a_crash_costs_only_what_was_in_flight(site: Installation) -> None:
    """Kill -9 under load: open reviews fail, a moment later none does, and nothing stays behind.

    A review that was sent to the crashed replica is not sent again by the API server, because it
    cannot know how far it came. Its create fails as a whole; whoever made it tries again.
    """
    where = site.namespace()
    ports = [replica.port for replica in site.replicas]

    def create(number: int) -> None:
        site.create(where, {**pod(), "metadata": {"name": f"p-{number}"}})

    with forwarding(ports) as port:
        site.point_at(port)
        site.wait_until_called()
        with Load(create, rate=100) as load:
            load.wait_until(200, within=60)
            killed = time.monotonic()
            site.replicas[1].process.kill()
            load.wait_until(len(load.calls) + 300, within=60)
        site.replicas[1].start()
        site.point_at(site.first.port)
        site.wait_until_called()

    late = [call for call in load.failures if not killed - 1 < call.began < killed + 0.5]
    stored = {item["metadata"]["name"]: item for item in site.api.get(PODS.format(where))["items"]}
    assert late == []
    assert len(load.failures) <= THREADS
    assert all("failed calling webhook" in call.error for call in load.failures)
    assert set(stored) == {f"p-{call.number}" for call in load.calls if not call.error}
    decided = "vgpu-admission.io/decision"
    assert all(item["metadata"]["annotations"][decided] for item in stored.values())


@pytest.mark.timeout(600)
def test_connections_that_rest_are_not_lost(site: Installation) -> None:
    """A pod that comes after a pause is created, whoever tires of an idle connection first.

    Five seconds is when a server of this kind hangs up unless told otherwise; after 90 the API
    server does so itself.
    """
    where = site.namespace()
    site.point_at(site.first.port)
    site.wait_until_called()

    for pause in (0, 4.9, 5.0, 5.1, 91):
        time.sleep(pause)
        assert site.refusal(where, pod()) == ""


def test_who_is_turned_away_comes_again(site: Installation) -> None:
    """A replica that may do one thing at a time says when to try again, and no create fails."""
    narrow = site.add_replica("--most=1")
    narrow.start()
    where = site.namespace()
    large = pod(container(limits={NUMBER: 1, MEMORY: 100}, env=BULK))
    site.point_at(narrow.port)
    site.wait_until_called()
    refusals: set[str] = set()

    def shed() -> bool:
        with ThreadPoolExecutor(5) as pool:
            refusals.update(pool.map(lambda _: site.refusal(where, large), range(20)))
        return narrow.metric("vgpu_admission_shed_total") > 0

    wait_for(shed, within=60)

    site.point_at(site.first.port)
    narrow.process.stop()
    site.replicas.remove(narrow)
    assert refusals == {""}
