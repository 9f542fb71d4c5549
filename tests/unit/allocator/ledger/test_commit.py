"""What is written into a ledger can be read back, or is not written."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from allocator.config.settings import DEFAULTS
from allocator.ledger.commit import readback_problems
from allocator.ledger.ledger import parse_ledger, parse_ledger_text
from allocator.ledger.schema import MOST_ENTRIES
from allocator.model.allocation import Entry
from allocator.model.decision import Findings, Reason
from allocator.model.request import MOST_CONTAINERS, Mode
from kube.clock import Clock
from tests.builders.bindings import answered, binding, review, stored
from tests.builders.containers import MEMORY, NUMBER, asked, box
from tests.builders.gpunodes import Json, entry, gpu_node, ledger
from tests.builders.model import mig_grant, nodes_of, snapshot, soft_grant
from tests.builders.pods import admitted, container, pod, received
from tests.fakes.ledger_server import LedgerServer
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler

NODE = nodes_of(16)
AROUND = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(NODE))
LITTLE = {NUMBER: 1, MEMORY: 10}
SHARE = soft_grant(10, gpu="GPU-n0-0")


def bind(server: LedgerServer, **names: str) -> Json:
    """Let one replica answer the review of one bind."""
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        clock=Clock(random=lambda: 0),
    )
    name = names.get("name", "p")
    body = review({**binding(), "metadata": {"name": name}}, **{"name": name, **names})
    return answered(asyncio.run(binder.bind(body)))


def server(asking: Json, name: str = "p", entries: Sequence[Entry] = ()) -> LedgerServer:
    found = stored(asking, name=name, uid="uid-p")
    return LedgerServer(gpu_node=gpu_node(NODE, entries), pods={name: found})


def asks(*names: str, limits: Json | None = None) -> Json:
    """Write a pod whose containers ask for little, all but the last before it starts."""
    *init, last = [container(name, limits=limits or LITTLE) for name in names]
    return pod(last, init=init)


@pytest.mark.parametrize(
    ("asking", "names"),
    [
        pytest.param(
            asks(*(f"c{i}" for i in range(MOST_CONTAINERS))), {}, id="as-many-containers-as-may"
        ),
        pytest.param(asks("main", limits={NUMBER: 16, MEMORY: 10}), {}, id="all-gpus"),
        pytest.param(
            asks("a" * 63),
            {"name": "p" + "a" * 252, "namespace": "n" * 63},
            id="names-as-long-as-may-be",
        ),
    ],
)
def test_what_the_hook_promises_is_read_back(asking: Json, names: dict[str, str]) -> None:
    """At each bound the node stays open for others."""
    api = server(admitted(received(asking), AROUND), names.get("name", "p"))

    assert bind(api, **names)["allowed"]

    found, decoded = parse_ledger_text(orjson.dumps(api.gpu_node))
    assert [entry_.uid for entry_ in found.entries] == ["uid-p"]
    assert (decoded.problems, found.unreadable) == ((), ())
    assert all(gpu.healthy for gpu in found.node.gpus)


@pytest.mark.parametrize("slow_path", [False, True], ids=["as-usual", "looked-at-closely"])
def test_more_containers_than_a_promise_holds_are_refused(slow_path: bool) -> None:
    """When the pod is made, with the number and what would be accepted."""
    first = {NUMBER: 1, MEMORY: "10", "volcano.sh/vgpu-cores": "0"} if slow_path else LITTLE
    boxes = [box({k: str(v) for k, v in first.items()}, name="i0")]
    boxes += [box({NUMBER: "1", MEMORY: "10"}, name=f"i{i}") for i in range(1, MOST_CONTAINERS)]

    findings = asked(box({NUMBER: "1", MEMORY: "10"}), init=boxes)

    assert isinstance(findings, Findings)
    assert findings.first.reason is Reason.TOO_MANY
    assert str(findings.first) == (
        "pod: 65 containers ask for GPUs; a pod may have at most 64; "
        "let at most 64 containers ask, or use several pods"
    )


def test_a_pod_past_admission_is_refused_when_it_is_bound() -> None:
    """One that no hook saw at CREATE writes nothing either."""
    api = server(received(asks(*(f"c{i}" for i in range(MOST_CONTAINERS + 1)))))

    answer = bind(api)

    assert (answer["status"]["code"], api.writes) == (422, 0)
    assert "65 containers ask for GPUs" in answer["status"]["message"]


def test_a_full_ledger_takes_no_more() -> None:
    """One entry more, and none of them could be read."""
    many = [entry(f"u{i}", SHARE) for i in range(MOST_ENTRIES)]
    asking = admitted(received(asks("main")), AROUND)
    bare = gpu_node(NODE, many)
    bare["status"]["gpus"][0]["slots"] = MOST_ENTRIES + 9
    full, nearly = copy.deepcopy(bare), copy.deepcopy(bare)
    del nearly["spec"]["entries"][0]
    refused, taken = server(asking), server(asking)
    refused.gpu_node, taken.gpu_node = full, nearly

    no, yes = bind(refused), bind(taken)

    assert (no["status"]["code"], refused.writes) == (409, 0)
    assert "its ledger is full with 1024 entries" in no["status"]["message"]
    assert yes["allowed"]
    assert len(parse_ledger(taken.gpu_node).entries) == MOST_ENTRIES


def test_a_full_ledger_still_renews_what_it_promised() -> None:
    """Whoever is in it already takes no place of another's."""
    many = [entry(f"u{i}", SHARE) for i in range(MOST_ENTRIES - 1)]
    asking = admitted(received(asks("main")), AROUND)
    api = server(asking, entries=[*many, entry("uid-p", SHARE)])
    api.gpu_node["status"]["gpus"][0]["slots"] = MOST_ENTRIES + 9

    assert bind(api)["allowed"]
    assert len(parse_ledger(api.gpu_node).entries) == MOST_ENTRIES


SIXTY_FIVE = tuple(replace(entry("a", SHARE).containers[0], name=f"c{i}") for i in range(65))


@pytest.mark.parametrize(
    ("malformed", "problem"),
    [
        pytest.param(
            replace(entry("a", SHARE), containers=SIXTY_FIVE),
            "spec.entries[0].containers: 65 elements found; accepted: at most 64",
            id="containers",
        ),
        pytest.param(
            entry("a", *[SHARE] * 65),
            "spec.entries[0].containers[0].devices: 65 elements found; accepted: at most 64",
            id="devices",
        ),
        pytest.param(
            entry("a", SHARE, container="c" * 64),
            f'spec.entries[0].containers[0].name: "{"c" * 64}" found; '
            "accepted: str of length <= 63",
            id="name",
        ),
        pytest.param(
            entry("a b", SHARE),
            'spec.entries[0].pod.uid: "a b" found; '
            "accepted: str matching regex '^[0-9A-Za-z-]{1,64}\\\\Z'",
            id="uid",
        ),
        pytest.param(
            entry("a", mig_grant("1g.5gb", 0, gpu="GPU-n0-0")),
            'spec.entries[0].containers[0].devices[0]: "1g.5gb" at 0 on "GPU-n0-0"; '
            "accepted: a profile and a start of a GPU in status.gpus",
            id="placement",
        ),
    ],
)
def test_what_could_not_be_read_back_is_told(malformed: Entry, problem: str) -> None:
    """Value, place and what would be accepted."""
    assert [str(problem) for problem in readback_problems(ledger(NODE), malformed)] == [problem]


def test_what_can_be_read_back_has_no_fault() -> None:
    """A share, and a slice of a GPU in MIG mode."""
    cut = nodes_of(1, mode=Mode.MIG)

    assert readback_problems(ledger(NODE), entry("a", SHARE)) == ()
    assert readback_problems(ledger(cut), entry("a", mig_grant("1g.5gb", 0, gpu="GPU-n0-0"))) == ()
