"""Capacity: kubelet's sums never refuse what the ledger accepts, and never end what runs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.node.capacity import (
    capacity,
    changes,
    desired_capacity,
    largest_sum,
    most_instances,
    total_slots,
    unaccounted_capacity,
    writable_names,
)
from agent.node.pods import NodePod, parse_pod
from allocator.catalog.vocabularies import (
    GPUSHARE,
    HAMI,
    SLOT,
    VOCABULARIES,
    VOLCANO,
    configure_vocabulary,
)
from allocator.ledger.assign import PodClaim, assign
from allocator.ledger.commit import with_entry
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Assignment, Entry
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, Mode, PodRequest, Stage
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from tests.builders.gpunodes import NOON, entry, ledger
from tests.builders.model import (
    A30,
    A100_40,
    H100,
    T4,
    ask,
    board,
    gpu,
    init,
    mig_grant,
    node,
    pod,
    sidecar,
    soft_grant,
)

KINDS = [
    pytest.param(product, mode, id=f"{product}-{mode}")
    for product, mode in (
        (A100_40, Mode.MIG),
        (A30, Mode.MIG),
        (H100, Mode.MIG),
        (H100, Mode.HAMI_CORE),
        (T4, Mode.HAMI_CORE),
    )
]


def pod_of(request: PodRequest, uid: str, *, factor: int = 1) -> NodePod:
    """Return a pod as it asks in Volcano's words, memory in units of *factor* MiB."""
    parts: dict[str, list[Any]] = {"initContainers": [], "containers": []}
    for asked in request.containers:
        kind = "initContainers" if asked.of_init else "containers"
        item: dict[str, Any] = {"name": asked.name, "resources": {"limits": limits(asked, factor)}}
        if asked.stage is Stage.SIDECAR:
            item["restartPolicy"] = "Always"
        parts[kind].append(item)
    raw = {"metadata": {"uid": uid, "name": uid}, "spec": {**parts, "nodeName": "n"}}
    return parse_pod(json.dumps(raw).encode())


def limits(asked: ContainerRequest, factor: int) -> dict[str, str]:
    wanted: dict[str | None, int | None] = {
        VOLCANO.count: asked.count,
        VOLCANO.memory: None if asked.memory is None else asked.memory // factor,
        VOLCANO.percent: asked.percent,
        VOLCANO.cores: asked.cores or None,
    }
    return {str(name): str(amount) for name, amount in wanted.items() if amount is not None}


def total_requests(pods: list[NodePod]) -> dict[str, int]:
    """Add up as kubelet and kube-scheduler do."""
    totals: dict[str, int] = {}
    for node_pod in pods:
        for name, amount in node_pod.requests.items():
            totals[name] = totals.get(name, 0) + amount
    return totals


FACTORS = (1, 7, 1024)
_COIN: st.SearchStrategy[bool] = st.booleans()


@st.composite
def container_requests(draw: st.DrawFn, factor: int) -> ContainerRequest:
    memory: int | None = draw(st.none() | st.integers(1, 41000 // factor).map(lambda n: n * factor))
    percent = None if memory is not None else draw(st.none() | st.integers(1, 100))
    made = ask(
        memory,
        percent=percent,
        cores=draw(st.sampled_from([0, 0, 10, 14, 30, 42, 100])),
        count=draw(st.sampled_from([1, 1, 1, 2])),
    )
    return draw(st.sampled_from([made, made, made, init(made), sidecar(made)]))


@st.composite
def pod_requests(draw: st.DrawFn, factor: int) -> PodRequest:
    several = draw(st.lists(container_requests(factor), min_size=1, max_size=3))
    named = [
        ContainerRequest(
            name=f"c{i}",
            index=one.index,
            stage=one.stage,
            count=one.count,
            memory=one.memory,
            percent=one.percent,
            cores=one.cores,
        )
        for i, one in enumerate(several)
    ]
    return pod(*named)


def ledger_after_bind(known: Ledger, request: PodRequest, uid: str) -> Ledger | None:
    assignment = assign(known, PodClaim(uid=uid, request=request), policy=PlacementPolicy())
    if not isinstance(assignment, Assignment):
        return None
    entry = Entry(namespace="a", pod=uid, uid=uid, since=NOON, containers=assignment.containers)
    return with_entry(known, entry)


@pytest.mark.parametrize(("product", "mode"), KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_what_the_ledger_accepts_kubelet_accepts(
    product: str, mode: Mode, data: st.DataObject
) -> None:
    """Whatever came and went before, in any order, with init containers and sidecars."""
    factor = data.draw(st.sampled_from(FACTORS))
    words = (configure_vocabulary(VOLCANO, memory_factor=factor), GPUSHARE)
    gpus = [gpu(product, index=i, mode=mode) for i in range(2)]
    gpus = [replace(g, slots=most_instances(g.board)) if g.board is not None else g for g in gpus]
    known = ledger(node("n", *gpus))
    limit = capacity(known.node.gpus, words) | {SLOT: total_slots(known.node.gpus)}
    tenants: list[NodePod] = []
    for number in range(data.draw(st.integers(1, 12))):
        request = data.draw(pod_requests(factor))
        uid = f"uid-{number}"
        after, leaves = ledger_after_bind(known, request, uid), data.draw(_COIN)
        if after is not None:
            known = after
            tenants.append(pod_of(request, uid, factor=factor))
        elif tenants and leaves:
            gone = tenants.pop(data.draw(st.integers(0, len(tenants) - 1)))
            rest = tuple(e for e in known.entries if e.uid != gone.uid)
            known = replace(known, entries=rest)
        sums = total_requests(tenants)
        assert {n: a for n, a in sums.items() if a > limit.get(n, 0)} == {}


def test_a_full_board_is_counted_in_full() -> None:
    """The best layout decides: seven small instances have more multiprocessors than one large."""
    shapes = board(A100_40)

    assert most_instances(shapes) == 7
    assert largest_sum(shapes, [profile.sms for profile in shapes.profiles]) == 98
    assert capacity([gpu(A100_40, mode=Mode.MIG)], [VOLCANO])["volcano.sh/vgpu-memory"] == 40192


def test_a_gpu_in_software_gives_what_it_has() -> None:
    """Memory in whole units of each GPU, a hundred percent, and no more."""
    two = [gpu(T4, index=0), gpu(T4, index=1)]

    assert capacity(two, VOCABULARIES) == {
        "volcano.sh/vgpu-memory": 2 * 15360,
        "volcano.sh/vgpu-cores": 200,
        "volcano.sh/vgpu-memory-percentage": 200,
        "aliyun.com/gpu-mem": 30,
        "aliyun.com/gpu-core.percentage": 200,
        "aliyun.com/gpu-count": 2,
    }


def test_hamis_resources_are_offered_where_they_are_served() -> None:
    """As many numbers and priorities as containers can share the GPUs, cut ones too."""
    gpus = [gpu(T4, index=0), gpu(A100_40, index=1, mode=Mode.MIG)]

    assert capacity(gpus, [HAMI]) == {
        "nvidia.com/gpu": 20,
        "nvidia.com/gpumem": 15360 + 40192,
        "nvidia.com/gpucores": 200,
        "nvidia.com/gpumem-percentage": 200,
        "nvidia.com/priority": 20,
    }
    assert writable_names([VOLCANO, HAMI]) >= set(HAMI.resources)


def test_a_vocabulary_without_mig_counts_no_gpu_that_is_cut() -> None:
    """And a resource of which there is none is left out, never 0."""
    found = capacity([gpu(A100_40, mode=Mode.MIG)], VOCABULARIES)

    assert not any(name.startswith("aliyun.com/") for name in found)


def test_a_sick_gpu_counts() -> None:
    """What is promised on it is in kubelet's sums, beside what the others can still give."""
    sick = replace(gpu(T4), healthy=False, foreign=MiB(15000))

    assert capacity([sick], [VOLCANO]) == capacity([gpu(T4)], [VOLCANO])


def live(uid: str, **more: object) -> NodePod:
    return replace(pod_of(pod(ask(5000)), uid), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "counted"),
    [
        pytest.param([entry("u", soft_grant(5000, gpu="GPU-0"))], False, id="promised-here"),
        pytest.param([], True, id="without-entry"),
        pytest.param([entry("u", soft_grant(5000, gpu="GPU-9"))], True, id="gpu-gone"),
        pytest.param([entry("u", mig_grant("1g.5gb", 0))], True, id="another-mode"),
    ],
)
def test_pods_that_no_gpu_accounts_for_come_on_top(entries: list[Entry], *, counted: bool) -> None:
    """Else a pod of a lost GPU would take the room of those that fit."""
    found = unaccounted_capacity([gpu(T4)], entries, [live("u")])

    assert found.get("volcano.sh/vgpu-memory", 0) == (5000 if counted else 0)


def test_a_pod_that_is_over_counts_no_more() -> None:
    """Kubelet has forgotten it too."""
    assert unaccounted_capacity([], [], [live("u", ended=True)]) == {}


@given(
    standing=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["0", "5", "7k"])),
    wanted=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9000)),
)
def test_a_change_leads_to_what_is_wanted_and_never_to_nothing(
    standing: Mapping[str, str], wanted: Mapping[str, int]
) -> None:
    """A key goes by deletion: at 0 a restarting kubelet would end running pods."""
    changed = changes(standing, wanted, "abc")
    after = {k: v for k, v in {**standing, **changed}.items() if v is not None}

    assert "0" not in changed.values()
    assert changes(after, wanted, "abc") == {}
    assert after.keys() == wanted.keys()


def test_what_somebody_else_reports_is_left_alone() -> None:
    """Kubelet's own resources and the slots, which are the plugin's to report."""
    assert changes({"cpu": "2", SLOT: "20"}, {}, writable_names(VOCABULARIES)) == {}


def test_the_server_writes_numbers_in_its_own_way() -> None:
    """3000 comes back as 3k, which is no change."""
    assert changes({"a/b": "3k"}, {"a/b": 3000}, ["a/b"]) == {}


def test_live_pods_keep_a_resource_that_no_gpu_has_any_more() -> None:
    """It goes when they have gone."""
    assert desired_capacity({}, {"a/b": 3}, ["a/b", "a/c"], linked={}) == {"a/b": 3}
    assert desired_capacity({}, {}, ["a/b"], linked={}) == {}


def test_scaled_cores_add_to_the_sum() -> None:
    """A site's deviceCoreScaling below one would refuse what the ledger accepts."""
    one: list[Gpu] = [gpu(T4)]

    assert capacity(one, [VOLCANO], cores_scaling=1.5)["volcano.sh/vgpu-cores"] == 150
    assert capacity(one, [VOLCANO], cores_scaling=0.5)["volcano.sh/vgpu-cores"] == 100
