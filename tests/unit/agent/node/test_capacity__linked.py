"""Linked capacity: whole GPUs and their memory are views of one ledger, in every vocabulary."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.node.capacity import (
    capacity,
    desired_capacity,
    linked_capacity,
    unaccounted_capacity,
    writable_names,
)
from agent.node.pods import NodePod, parse_pod
from allocator.catalog.vocabularies import (
    GPUSHARE,
    HAMI,
    VOCABULARIES,
    VOLCANO,
    configure_vocabulary,
)
from allocator.ledger.assign import PodClaim, assign
from allocator.ledger.commit import with_entry
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Assignment, Entry
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import WHOLE_GPU
from allocator.model.usage import peak_grants
from allocator.placement.choose import PlacementPolicy
from tests.builders.gpunodes import NOON, entry, ledger
from tests.builders.model import T4, ask, gpu, init, node, pod, soft_grant

COUNT: Final = str(GPUSHARE.count)
GIB: Final = str(GPUSHARE.memory)


@dataclass
class Asked:
    """A pod in one vocabulary: what we parse of it, and what kube-scheduler adds up."""

    request: PodRequest
    limits: tuple[Mapping[str, int], ...]  # of each container

    def seen(self, uid: str, *, ended: bool = False) -> NodePod:
        kinds: dict[str, list[dict[str, object]]] = {"initContainers": [], "containers": []}
        for one, limits in zip(self.request.containers, self.limits, strict=True):
            amounts = {name: str(amount) for name, amount in limits.items()}
            kind = "initContainers" if one.of_init else "containers"
            kinds[kind].append({"name": one.name, "resources": {"limits": amounts}})
        phase = "Succeeded" if ended else "Running"
        body = {
            "metadata": {"uid": uid, "name": uid},
            "spec": {**kinds, "nodeName": "n"},
            "status": {"phase": phase},
        }
        return parse_pod(json.dumps(body).encode())


def whole(count: int) -> tuple[ContainerRequest, Mapping[str, int]]:
    return ask(cores=100, count=count), {COUNT: count}


def shared(gib: int) -> tuple[ContainerRequest, Mapping[str, int]]:
    return ask(gib * 1024), {GIB: gib}


def asked(
    *parts: tuple[ContainerRequest, Mapping[str, int]], mode: Mode = Mode.MEMORY_ONLY
) -> Asked:
    named = [msgspec.structs.replace(one, name=f"c{i}") for i, (one, _) in enumerate(parts)]
    request = msgspec.structs.replace(pod(*named, mode=mode), vocabulary="gpushare")
    return Asked(request, tuple(limits for _, limits in parts))


@st.composite
def pods(draw: st.DrawFn) -> Asked:
    """Build a pod in the words of gpushare, or of Volcano."""
    part = st.one_of(
        st.integers(1, 3).map(whole), st.integers(1, 15).map(shared), st.integers(1, 4).map(shared)
    )
    kind = draw(st.sampled_from(["one", "two", "init", "volcano", "volcano-whole"]))
    if kind == "volcano":
        memory = draw(st.integers(1, 15000))
        one = ask(memory), {str(VOLCANO.count): 1, str(VOLCANO.memory): memory}
        return asked(one, mode=Mode.HAMI_CORE)
    if kind == "volcano-whole":
        one = ask(cores=100), {str(VOLCANO.count): 1, str(VOLCANO.cores): 100}
        return asked(one, mode=Mode.HAMI_CORE)
    first = draw(part)
    if kind == "one":
        return asked(first)
    second = draw(part)
    return asked((init(first[0]), first[1]) if kind == "init" else first, second)


@dataclass
class Cluster:
    """A node whose agent learns of pods, and of their end, later than the ledger."""

    ledger: Ledger
    pods: dict[str, Asked] = field(default_factory=dict)  # in kube-scheduler's sums
    seen: set[str] = field(default_factory=set)  # whose pod the agent knows

    def offered(self) -> dict[str, int]:
        """Return what the agent writes now."""
        known = [self.pods[uid].seen(uid) for uid in sorted(self.seen & self.pods.keys())]
        gpus, entries = self.ledger.node.gpus, self.ledger.entries
        bare = [replace(one, grants=()) for one in gpus]
        return offered(bare, entries, known)

    def summed(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for uid, one in self.pods.items():
            for name, amount in one.seen(uid).requests.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    def bind(self, uid: str, one: Asked) -> bool:
        claim = PodClaim(uid=uid, request=one.request)
        assignment = assign(self.ledger, claim, policy=PlacementPolicy())
        if not isinstance(assignment, Assignment):
            return False
        made = Entry(namespace="a", pod=uid, uid=uid, since=NOON, containers=assignment.containers)
        self.ledger = with_entry(self.ledger, made)
        self.pods[uid] = one
        return True

    def free(self, uid: str) -> None:
        rest = tuple(entry for entry in self.ledger.entries if entry.uid != uid)
        self.ledger = replace(self.ledger, entries=rest)


def offered(gpus: list[Gpu], entries: Iterable[Entry], known: list[NodePod]) -> dict[str, int]:
    entries = tuple(entries)
    return desired_capacity(
        capacity(gpus, VOCABULARIES),
        unaccounted_capacity(gpus, entries, known),
        writable_names(VOCABULARIES),
        linked=linked_capacity(gpus, VOCABULARIES, entries=entries, pods=known),
    )


def new_cluster(count: int) -> Cluster:
    return Cluster(ledger(node("n", *(gpu(T4, index=i) for i in range(count)))))


@settings(max_examples=150)
@given(data=st.data())
def test_capacity_follows_the_ledger_and_refuses_nothing_that_it_accepts(
    data: st.DataObject,
) -> None:
    """Whatever comes, goes, and is learned late: sums fit, and no whole GPU has a second tenant."""
    site = new_cluster(3)
    for number in range(data.draw(st.integers(1, 14))):
        act = data.draw(st.sampled_from(["bind", "bind", "bind", "learn", "end", "free"]))
        ended = sorted({e.uid for e in site.ledger.entries} - site.pods.keys())
        if act == "bind":
            before = site.offered()
            if site.bind(f"u{number}", data.draw(pods())):
                sums = site.summed()
                assert {n: a for n, a in sums.items() if n in (COUNT, GIB) and a > before[n]} == {}
        elif act == "learn":
            site.seen |= site.pods.keys()
        elif act == "end" and site.pods:
            gone = data.draw(st.sampled_from(sorted(site.pods)))
            del site.pods[gone]
        elif act == "free" and ended:
            site.free(data.draw(st.sampled_from(ended)))
        sums, now = site.summed(), site.offered()
        assert all(now.get(name, 0) >= sums.get(name, 0) for name in (COUNT, GIB))
        _no_whole_gpu_is_shared(site.ledger)


def _no_whole_gpu_is_shared(known: Ledger) -> None:
    held: dict[str, list[tuple[str, int]]] = {}
    for one in known.entries:
        for grant in peak_grants(one.containers):
            held.setdefault(grant.gpu, []).append((one.uid, grant.cores))
    for tenants in held.values():
        assert len(tenants) == 1 or all(cores < WHOLE_GPU for _, cores in tenants)


@settings(max_examples=100)
@given(data=st.data())
def test_what_is_free_by_the_sums_is_free_in_the_ledger(data: st.DataObject) -> None:
    """Once the agent knows all pods, idle GPUs are counted to the last, and no other GPU is."""
    site = new_cluster(3)
    for number in range(data.draw(st.integers(0, 6))):
        site.bind(f"u{number}", data.draw(pods()))
    site.seen |= site.pods.keys()

    sums, now = site.summed(), site.offered()
    busy = {grant.gpu for one in site.ledger.entries for grant in peak_grants(one.containers)}
    assert now.get(COUNT, 0) - sums.get(COUNT, 0) == 3 - len(busy)


def test_memory_takes_its_gpu_out_of_the_count_and_back() -> None:
    """The example of four GPUs: two with shares leave two whole ones."""
    site = new_cluster(4)
    first, second, *_ = (one.uuid for one in site.ledger.node.gpus)
    entries = (entry("a", soft_grant(4096, gpu=first)), entry("b", soft_grant(9000, gpu=second)))
    site.ledger = replace(site.ledger, entries=entries)
    site.pods = {"a": asked(shared(4)), "b": asked((ask(9000), {str(VOLCANO.memory): 9000}))}
    site.seen = {"a", "b"}

    assert (site.offered()[COUNT], site.offered()[GIB]) == (2, 11 + 6 + 15 + 15 + 4)
    site.pods = {}
    assert (site.offered()[COUNT], site.offered()[GIB]) == (4, 60)


@pytest.mark.parametrize(
    ("one", "left"),
    [
        pytest.param(asked(whole(1)), 2, id="by-count"),
        pytest.param(asked((ask(3000, cores=100), {}), mode=Mode.HAMI_CORE), 1, id="by-cores"),
    ],
)
def test_a_whole_gpu_takes_its_memory_along(one: Asked, left: int) -> None:
    """What asked by the count is in its sum; what asked in other words is taken off it."""
    site = new_cluster(2)
    site.bind("u", one)
    site.seen = {"u"}

    assert (site.offered()[COUNT], site.offered()[GIB]) == (left, 15)


def test_an_entry_whose_pod_is_unknown_takes_nothing_away() -> None:
    """Kubelet may be about to admit it against these sums."""
    site = new_cluster(1)
    site.bind("u", asked(whole(1)))

    assert site.offered()[COUNT] == 1


def test_a_pod_that_is_over_takes_nothing_away() -> None:
    """kube-scheduler counts it no more, whatever it asked in, though its entry is there yet."""
    site = new_cluster(1)
    ended = asked((ask(3000, cores=100), {}), mode=Mode.HAMI_CORE)
    site.bind("u", ended)

    left = offered(
        list(new_cluster(1).ledger.node.gpus), site.ledger.entries, [ended.seen("u", ended=True)]
    )

    assert (left[COUNT], left[GIB]) == (1, 15)


def test_memory_is_linked_in_the_unit_of_the_cluster() -> None:
    """Where it is MiB, what is free is counted in MiB."""
    in_mib = configure_vocabulary(GPUSHARE, memory_factor=1)
    bare = new_cluster(2).ledger.node.gpus
    held = (entry("a", soft_grant(4096, gpu=bare[0].uuid)),)
    known = [asked(shared(4)).seen("a")]

    linked = linked_capacity(bare, (in_mib,), entries=held, pods=known)

    assert linked == {COUNT: 1, GIB: 15360 - 4096 + 15360 + 4}


@pytest.mark.parametrize(("linked", "written"), [(9, 7), (6, 6), (0, None)])
def test_linked_capacity_only_lowers(linked: int, written: int | None) -> None:
    """More than the GPUs have, and pods hold beside them, is never offered."""
    found = desired_capacity({COUNT: 5}, {COUNT: 2}, [COUNT], linked={COUNT: linked})

    assert found.get(COUNT) == written


def test_words_without_whole_gpus_are_not_linked() -> None:
    """Their number counts shares, of which a used GPU has some left."""
    bare = new_cluster(1).ledger.node.gpus
    held = (entry("a", soft_grant(4096, gpu=bare[0].uuid)),)
    known = [asked(shared(4)).seen("a")]

    assert linked_capacity(bare, (VOLCANO, HAMI), entries=held, pods=known) == {}
