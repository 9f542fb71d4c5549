"""Binds that come together share a write, a moved ledger is read anew, and lateness is said."""

import asyncio
import copy

import pytest

from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.config.settings import DEFAULTS, NodeAgent, Settings
from allocator.model.request import Mode
from kube.clock import Clock
from kube.errors import UnreachableError
from tests.builders.bindings import answered, applied, binding, review, stored
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from tests.fakes.ledger_server import LedgerServer
from tests.harness.records import KeptRecords
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler, LateError

NODE = nodes_of(8)
AROUND = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(NODE))
ASKING = admitted(received(pod(container(limits={NUMBER: 1, MEMORY: 3000}))), AROUND)


def api(count: int = 1) -> LedgerServer:
    """Make an API server with *count* pods, ``p`` first."""
    names = ["p", *(f"p{i}" for i in range(1, count))]
    return LedgerServer(pods={name: stored(ASKING, name=name, uid=f"uid-{name}") for name in names})


def bind(
    server: LedgerServer, *bodies: bytes, patience: float = 5, around: AdmissionContext = AROUND
) -> list[Json]:
    """Let one replica answer all reviews at once."""
    clock = Clock(random=lambda: 0)
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: around,
        nodes_with_entry=lambda _: frozenset(),
        clock=clock,
        patience=patience,
    )

    async def together() -> list[bytes]:
        return await asyncio.gather(*map(binder.bind, bodies))

    return list(map(answered, asyncio.run(together())))


def test_binds_are_recorded() -> None:
    """Each bind of a pod that asks leaves one line, promised or refused; a dry run leaves none."""
    server = api()
    lines = KeptRecords()
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        remember=lines.append,
        clock=Clock(random=lambda: 0),
    )

    async def one_by_one() -> None:
        for body in (review(binding(), dryRun=True), review(binding()), named("gone")):
            await binder.bind(body)

    asyncio.run(one_by_one())

    promised, refused = lines
    assert (promised["outcome"], promised["mode"], promised["ledger"]) == (
        "promised",
        "hami-core",
        "uid-n0/7",
    )
    assert (refused["outcome"], refused["code"]) == ("refused", 404)


def named(name: str) -> bytes:
    return review({**binding(), "metadata": {"name": name}}, name=name)


def test_demand_is_learned_from_binds_that_could_have_been_served() -> None:
    """A promise is an arrival; a dry run and a pod that is gone are not."""
    server = api(9)
    seen: list[tuple[str, bool]] = []
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        learn_arrival=lambda uid, _, failed: seen.append((uid, failed)),
        clock=Clock(random=lambda: 0),
    )

    async def one_by_one() -> None:
        for body in (review(binding(), dryRun=True), named("gone"), review(binding())):
            await binder.bind(body)

    asyncio.run(one_by_one())

    assert seen == [("uid-p", False)]


def test_a_bind_is_promised() -> None:
    """The answer carries what the ledger holds."""
    server = api()

    (answer,) = bind(server, review(binding()))

    assert answer["allowed"]
    assert {op["path"] for op in answer["patch"]} >= {"/metadata/uid", "/metadata/annotations"}
    assert server.uids == ["uid-p"]


def test_binds_to_one_node_share_writes() -> None:
    """64 at once cost two writes: the first one's own, and one for all that waited meanwhile."""
    server = api(64)

    answers = bind(server, *map(named, server.pods))

    assert all(answer["allowed"] for answer in answers)
    assert sorted(server.uids) == sorted(f"uid-{name}" for name in server.pods)
    assert server.writes <= 2


def test_a_doubled_review_makes_one_entry() -> None:
    """Both answers tell of the same promise."""
    server = api()

    one, other = bind(server, review(binding()), review(binding()))

    assert server.uids == ["uid-p"]
    told, again = (answer["patch"][1]["value"][ASSIGNMENT_KEY] for answer in (one, other))
    assert told == again  # when they were told may differ


def test_a_dry_run_commits_nothing() -> None:
    """It is answered as if it were real."""
    server = api()

    (answer,) = bind(server, review(binding(), dryRun=True))

    assert answer["allowed"]
    assert (server.writes, server.uids) == (0, [])


def test_a_moved_ledger_is_read_anew() -> None:
    """Another replica's write in between costs a second attempt, not a refusal."""
    server = api()

    def another(found: LedgerServer) -> None:
        if found.writes == 1:
            found.gpu_node = copy.deepcopy(found.gpu_node)
            found.gpu_node["metadata"]["generation"] += 1

    server.before_write = another

    (answer,) = bind(server, review(binding()))

    assert answer["allowed"]
    assert (server.writes, server.uids) == (2, ["uid-p"])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(named("gone"), 'pod "team-a/gone" does not exist', id="pod"),
        pytest.param(review(binding(node="n7")), 'node "n7" has no GPUs', id="node"),
        pytest.param(review(binding(uid="other")), "recreated", id="uid"),
        pytest.param(review({"target": 1}), "cannot be read", id="unreadable"),
    ],
)
def test_a_hopeless_bind_is_denied(body: bytes, text: str) -> None:
    """The scheduler gets our words, and the ledger nothing."""
    server = api()

    (answer,) = bind(server, body)

    assert not answer["allowed"]
    assert text in answer["status"]["message"]
    assert server.writes == 0


def test_a_full_node_says_so() -> None:
    """What fits the hardware and not now is a conflict, in words that say what is short."""
    server = api(2)
    server.gpu_node = gpu_node(nodes_of(1))
    server.pods = {
        name: stored(
            admitted(received(pod(container(limits={NUMBER: 1, MEMORY: 30000}))), AROUND),
            name=name,
            uid=f"uid-{name}",
        )
        for name in ("p", "p1")
    }

    answers = bind(server, named("p"), named("p1"))

    denied = next(answer for answer in answers if not answer["allowed"])
    assert denied["status"]["code"] == 409
    assert denied["status"]["message"].startswith('node "n0": container "main": ')
    assert len(server.uids) == 1


def test_a_lost_answer_is_lateness() -> None:
    """Whether the write was carried out is unknown, so the API server is to ask again."""
    server = api()
    server.trouble = [UnreachableError("reset", sent=True)]

    with pytest.raises(LateError):
        bind(server, review(binding()))

    assert bind(server, review(binding()))[0]["allowed"]
    assert server.uids == ["uid-p"]


def test_patience_ends() -> None:
    """A server that does not answer in time makes us late, never silent."""
    server = api()
    server.slow = 1.0

    with pytest.raises(LateError, match="within"):
        bind(server, review(binding()), patience=0.02)


def test_a_node_of_another_plugin_is_left_to_it() -> None:
    """Where upstream's plugin serves and no ledger is kept, its scheduler's word goes through."""
    settings = Settings(node_agent=NodeAgent.UPSTREAM)
    upstream = AdmissionContext(settings=settings, snapshot=snapshot(NODE))
    brought = {"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,3000,0:", "vgpu-admission.io/x": "y"}
    written = binding(node="elsewhere", annotations=brought)
    (found,) = bind(api(), review(written), around=upstream)

    assert applied(written, found["patch"])["metadata"]["annotations"] == {
        "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,3000,0:",
        "vgpu-admission.io/served-by": "upstream",
    }


def test_the_weights_of_a_choice_are_recorded() -> None:
    """A bind on a board that MIG cuts says by which weights its place was found."""
    cut = nodes_of(1, mode=Mode.MIG)
    around = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(cut))
    server = api()
    server.gpu_node = gpu_node(cut)
    server.pods["p"] = stored(
        admitted(received(pod(container(limits={NUMBER: 1, MEMORY: 3000}))), around),
        name="p",
        uid="uid-p",
    )
    lines = KeptRecords()
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: around,
        nodes_with_entry=lambda _: frozenset(),
        remember=lines.append,
        clock=Clock(random=lambda: 0),
    )

    asyncio.run(binder.bind(review(binding())))

    weights = lines[0]["weights"]["NVIDIA A100-SXM4-40GB"]
    assert weights.keys() == {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
