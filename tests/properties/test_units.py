"""A remedy is in the unit and by the names of its request: who pastes it back gets further."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from allocator.catalog.vocabularies import GPUSHARE, SLOT, VOLCANO, Vocabulary, configure_vocabulary
from allocator.config.settings import FleetScope, NodeAgent, Settings
from allocator.model.decision import Finding, Findings
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import Mode, PodRequest
from allocator.model.units import MiB
from allocator.placement.choose import FitVerdict, choose
from allocator.placement.mode import choose_mode
from allocator.request.resource_names import MOST_MEMORY
from tests.builders.containers import box, request
from tests.builders.model import A30, A100_40, T4, gpu, node, snapshot, soft_grant

# A vocabulary that the catalogue does not have: nothing but its data may be needed.
NEW: Final = Vocabulary(
    name="example",
    count="example.com/gpus",
    memory="example.com/gpu-memory",
    percent="example.com/gpu-percent",
    cores="example.com/gpu-cores",
    slot=SLOT,
    prefixes=("example.com/gpu",),
)
FACTORS: Final = (1, 7, 10, 1000, 1024, 20480)
AT_MOST: Final = re.compile(r"ask for at most (\d+)")
WIDER: Final = re.compile(r"or use (\S+) (\d+) with (\d+) each")
RESOURCE: Final = re.compile(r'limits\["(.+)"\]$')
CLOSED: Final = Settings(fleet=FleetScope.CLOSED)
# One GPU with a third of its memory left, so that advice is asked for often.
BUSY: Final = snapshot(node("n0", gpu(T4, grants=[soft_grant(9001)])))
Limits = Mapping[str, int]


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    vocabulary = draw(st.sampled_from([VOLCANO, GPUSHARE, NEW]))
    renamed = draw(st.booleans())
    return configure_vocabulary(
        vocabulary,
        memory_factor=draw(st.sampled_from(FACTORS)),
        names={name: f"{name}-of-ours" for name in vocabulary.resources} if renamed else None,
    )


@st.composite
def limits_in(draw: st.DrawFn, names: Vocabulary) -> dict[str, int]:
    assert names.count is not None
    assert names.memory is not None
    assert names.cores is not None
    if names.whole and draw(st.booleans()):
        return {names.count: draw(st.integers(1, 4))}
    mib = draw(st.sampled_from([1, 5000, 9216, 14336, 15361, 20480, 45000, 90000, 2**21]))
    limits = {names.memory: min(max(1, mib // names.memory_factor), MOST_MEMORY)}
    if names.percent is not None and draw(st.booleans()):
        limits = {names.percent: draw(st.integers(1, 100))}
    if not names.whole:
        limits[names.count] = draw(st.integers(1, 4))
    if draw(st.booleans()):
        limits[names.cores] = draw(st.sampled_from([1, 30, 60, 100]))
    return limits


@st.composite
def fleets(draw: st.DrawFn) -> Snapshot:
    return snapshot(*(draw(fleet_nodes(f"n{i}")) for i in range(draw(st.integers(1, 2)))))


@st.composite
def fleet_nodes(draw: st.DrawFn, name: str) -> Node:
    model = draw(st.sampled_from([T4, A30, A100_40]))
    held = st.tuples(st.sampled_from([0, 900, 9001, 14000]), st.sampled_from([0, 0, 30, 100]))
    mig = model != T4 and draw(st.booleans())
    gpus = [
        gpu(model, index=i, mode=Mode.MIG)
        if mig
        else replace(
            gpu(model, index=i, grants=[soft_grant(n, c) for n, c in [draw(held)] if n]),
            foreign=MiB(draw(st.sampled_from([0, 2000]))),
        )
        for i in range(draw(st.sampled_from([1, 1, 2])))
    ]
    return node(name, *gpus)


def read(limits: Limits, names: Vocabulary) -> PodRequest:
    """Read a pod of one container, which must be well formed."""
    written = {name: str(amount) for name, amount in limits.items()}
    return request(box(written), vocabularies=(names,))


def pasted(limits: Limits, findings: Sequence[Finding]) -> dict[str, int] | None:
    """Return *limits* with every remedy that names a number; ``None`` where there is none."""
    changed = dict(limits)
    for finding in findings:
        match, resource = AT_MOST.search(finding.remedy), RESOURCE.search(finding.field)
        if match is not None:
            assert resource is not None, finding
            changed[resource[1]] = int(match[1])
    return None if changed == limits else changed


def refused(request: PodRequest, fleet: Snapshot, settings: Settings) -> Sequence[Finding]:
    """Return what admission has against *request*, nothing where it is admitted."""
    decision = choose_mode(request, fleet, settings=settings).decision
    return decision.all if isinstance(decision, Findings) else ()


@given(st.data(), vocabularies(), fleets())
def test_a_remedy_pasted_back_at_admission_is_accepted(
    data: st.DataObject, names: Vocabulary, fleet: Snapshot
) -> None:
    """Or the next answer is final: it names no number any more."""
    settings = Settings(fleet=FleetScope.CLOSED, node_agent=data.draw(st.sampled_from(NodeAgent)))
    limits = data.draw(limits_in(names))
    better = pasted(limits, refused(read(limits, names), fleet, settings))
    if better is not None:
        left = refused(read(better, names), fleet, settings)
        assert not any(AT_MOST.search(finding.remedy) for finding in left), (limits, better, left)


@given(st.data(), vocabularies(), st.just(BUSY) | fleets())
def test_a_remedy_pasted_back_at_the_bind_fits(
    data: st.DataObject, names: Vocabulary, fleet: Snapshot
) -> None:
    """What would fit now fits; what no GPU could hold is no longer more than any GPU has."""
    limits = data.draw(limits_in(names))
    choice = choose(fleet, read(limits, names))
    better = pasted(limits, choice.findings)
    if better is None:
        return
    again = choose(fleet, read(better, names))
    if choice.verdict is FitVerdict.NOT_NOW:
        assert again.verdict is FitVerdict.FITS, (limits, better, again.findings)
    elif again.verdict is FitVerdict.NEVER:
        assert pasted(better, again.findings) is None, (limits, better, again.findings)


@given(st.data(), vocabularies(), fleets())
def test_the_wider_way_is_in_the_unit_of_the_request_too(
    data: st.DataObject, names: Vocabulary, fleet: Snapshot
) -> None:
    """The advice to use more GPUs with less on each is understood as it stands."""
    limits = data.draw(limits_in(names))
    for finding in refused(read(limits, names), fleet, CLOSED):
        if (wider := WIDER.search(finding.remedy)) is not None:
            assert names.count is not None
            assert names.memory is not None
            assert names.count.endswith(wider[1])
            split = {**limits, names.count: int(wider[2]), names.memory: int(wider[3])}
            left = refused(read(split, names), fleet, CLOSED)
            assert not any("or use" in finding.remedy for finding in left), (limits, split, left)


@given(st.data(), vocabularies(), fleets())
def test_a_translated_percentage_is_whole_units(
    data: st.DataObject, names: Vocabulary, fleet: Snapshot
) -> None:
    """What admission writes for upstream's plugin is read back as the same amount."""
    settings = Settings(node_agent=NodeAgent.UPSTREAM)
    asked = read(data.draw(limits_in(names)), names)
    outcome = choose_mode(asked, fleet, settings=settings)
    for container in outcome.request.containers:
        if container.memory is not None:
            assert container.memory > 0
            assert container.memory % names.memory_factor == 0
