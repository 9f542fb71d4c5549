"""The mode a pod leaves admission with: what it costs, who decides, and when nobody can."""

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from types import MappingProxyType

import msgspec
import pytest

from allocator.config.settings import DEFAULTS, FleetScope, Prefer
from allocator.model.decision import Finding, Findings, ModeChoice, ModeSource, Reason
from allocator.model.gpu import GpuKind
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.units import MiB
from allocator.placement.mode import explain_mode, mode_for, translated_percent, weigh
from tests.builders.model import (
    A30,
    A100_40,
    A100_80,
    H100,
    T4,
    ask,
    fleet,
    init,
    offer,
    pod,
    sidecar,
)

CLOSED = msgspec.structs.replace(DEFAULTS, fleet=FleetScope.CLOSED)
MIG, SOFT, MEMORY_ONLY = Mode.MIG, Mode.HAMI_CORE, Mode.MEMORY_ONLY
NOTHING: Mapping[GpuKind, int] = MappingProxyType({})
BOTH = fleet((A100_40, MIG), (A100_40, SOFT))

FLEETS = {
    "A100-40 in mig": fleet((A100_40, MIG)),
    "A100-40 in hami-core": fleet((A100_40, SOFT)),
    "A100-40 in both": BOTH,
    "A100-80 in both": fleet((A100_80, MIG), (A100_80, SOFT)),
    "H100 in both": fleet((H100, MIG), (H100, SOFT)),
    "A30 in both": fleet((A30, MIG), (A30, SOFT)),
    "T4": fleet((T4, SOFT)),
    "A100-40 in mig, T4": fleet((A100_40, MIG), (T4, SOFT)),
    "A30 in mig, A100-80 in hami-core": fleet((A30, MIG), (A100_80, SOFT)),
    "A30, A100-80 and H100 in mig; A100-40 and T4 in hami-core": fleet(
        (A30, MIG), (A100_80, MIG), (H100, MIG), (A100_40, SOFT), (T4, SOFT)
    ),
}
MEMORIES = (
    *(1000, 2000, 4000, 4864, 5000, 8000, 10000),
    *(12000, 16000, 20000, 24000, 40000, 60000, 80000),
)
ASKS: Mapping[str, ContainerRequest] = {
    **{f"{memory} MiB": ask(memory) for memory in MEMORIES},
    **{f"{percent}%": ask(percent=percent) for percent in (10, 25, 50)},
    "a whole GPU": ask(),
    **{f"4000 MiB, {cores} cores": ask(4000, cores=cores) for cores in (10, 14, 30, 50, 100)},
    "2 GPUs, 8000 MiB each": ask(8000, count=2),
}


def chosen(
    request: PodRequest, offers: Mapping[GpuKind, int] = BOTH, *, prefer: Prefer = Prefer.COST
) -> ModeChoice:
    settings = msgspec.structs.replace(CLOSED, prefer=prefer)
    found = mode_for(request, offers, settings=settings, complete=True)
    assert isinstance(found, ModeChoice)
    return found


def refused(request: PodRequest, offers: Mapping[GpuKind, int] = BOTH) -> Finding:
    found = mode_for(request, offers, settings=CLOSED, complete=True)
    assert isinstance(found, Findings)
    return found.first


def test_every_row_of_the_table(golden: Callable[[str, str], str]) -> None:
    """Costs, mode, profile and reason are as reviewed, on every kind of fleet."""
    rendered = "\n".join(line for name in FLEETS for line in table(name)) + "\n"

    assert rendered == golden("modes.txt", rendered)


def table(name: str) -> Iterator[str]:
    yield f"## {name}"
    yield f"{'asked':<23}  {'mig':>4}  {'soft':>4}  {'mode':<9}  {'source':<6}  profile    why"
    for asked, container in ASKS.items():
        yield f"{asked:<23}  {row(container, FLEETS[name])}"
    yield ""


def row(container: ContainerRequest, offers: Mapping[GpuKind, int]) -> str:
    found = mode_for(pod(container), offers, settings=CLOSED, complete=True)
    if isinstance(found, Findings):
        (finding,) = found.all
        return f"{'-':>4}  {'-':>4}  {'-':<9}  {'-':<6}  {'-':<9}  {finding.reason}: {finding}"
    profiles = found.mode_costs[0].profiles if found.mode_costs else ()
    profile = " ".join(profiles) or "-"
    return (
        f"{found.costs.get(MIG, '-'):>4}  {found.costs.get(SOFT, '-'):>4}  {found.mode:<9}  "
        f"{found.source:<6}  {profile or '-':<9}  {explain_mode(found)}"
    )


def test_the_order_of_offers_decides_nothing() -> None:
    """Replicas that list kinds in another order write the same bytes."""
    kinds = [(A100_40, MIG), (A100_80, MIG), (A100_40, SOFT), (A100_80, SOFT)]

    found = {chosen(pod(ask(9000)), fleet(*order)) for order in permutations(kinds)}

    assert len(found) == 1


@pytest.mark.parametrize(
    ("mig", "soft", "prefer", "expected"),
    [
        pytest.param(200, 100, Prefer.COST, MIG, id="within-ten-points"),
        pytest.param(201, 100, Prefer.COST, SOFT, id="over-ten-points"),
        pytest.param(125, 140, Prefer.COST, MIG, id="mig-costs-less"),
        pytest.param(1000, 100, Prefer.ISOLATION, MIG, id="isolation-at-any-cost"),
        pytest.param(125, 124, Prefer.DENSITY, SOFT, id="density-by-one"),
        pytest.param(125, 125, Prefer.DENSITY, MIG, id="density-on-a-tie"),
    ],
)
def test_the_cheaper_mode_wins_unless_isolation_is_nearly_free(
    mig: int, soft: int, *, prefer: Prefer, expected: Mode
) -> None:
    """Ten points of a GPU buy hardware isolation; a preference overrides."""
    mode, _ = weigh({MIG: mig, SOFT: soft}, prefer)

    assert mode is expected


@pytest.mark.parametrize("prefer", Prefer)
def test_several_gpus_mean_mig_only_where_nothing_else_serves(prefer: Prefer) -> None:
    """MIG instances have no peer-to-peer; a named mode binds all the same."""
    two = pod(ask(4864, count=2))
    found = chosen(two, prefer=prefer)

    assert (found.mode, found.source) == (SOFT, ModeSource.ONLY)
    assert "cannot exchange data" in found.why
    alone = chosen(two, fleet((A100_40, MIG)), prefer=prefer)
    assert (alone.mode, alone.source) == (MIG, ModeSource.ONLY)
    named = chosen(pod(ask(4864, count=2), mode=MIG), prefer=prefer)
    assert (named.mode, named.source) == (MIG, ModeSource.NAMED)


def test_the_usual_mode_of_several_gpus_is_not_mig() -> None:
    """Nothing is known yet, and the site's default is MIG."""
    settings = msgspec.structs.replace(DEFAULTS, default_mode=MIG)

    for count, expected in ((1, MIG), (2, SOFT)):
        found = mode_for(pod(ask(4000, count=count)), NOTHING, settings=settings, complete=False)
        assert isinstance(found, ModeChoice)
        assert found.mode is expected


def test_a_named_mode_binds() -> None:
    """The mode a user names is kept, and what the other would have cost is recorded."""
    found = chosen(pod(ask(1000), mode=MIG), prefer=Prefer.DENSITY)

    assert found.mode is MIG
    assert found.source is ModeSource.NAMED
    assert found.costs == {MIG: 125, SOFT: 25}


def test_a_named_profile_names_the_mode() -> None:
    """A MIG profile can only be had in MIG mode, and is taken although it is no plain one."""
    found = chosen(pod(ask(), profile="1g.10gb"))

    assert found.mode is MIG
    assert found.mode_costs[0].profiles == ("1g.10gb",)


def test_only_one_mode_left() -> None:
    """Where one mode cannot serve, the other is not a choice."""
    found = chosen(pod(ask(4000)), fleet((T4, SOFT)))

    assert found.source is ModeSource.ONLY


def test_memory_only_is_fixed() -> None:
    """A vocabulary without isolation goes to GPUs that are shared in software."""
    found = chosen(pod(ask(4000), mode=MEMORY_ONLY))

    assert found.mode is MEMORY_ONLY
    assert found.source is ModeSource.ONLY
    assert found.costs == {MEMORY_ONLY: 99}


@pytest.mark.parametrize(
    ("containers", "cost"),
    [
        pytest.param([ask(4000), ask(4000)], 198, id="apps-add-up"),
        pytest.param([ask(4000, count=3)], 297, id="devices-add-up"),
        pytest.param([init(ask(8000)), ask(4000)], 198, id="larger-init-counts"),
        pytest.param([init(ask(2000)), ask(4000)], 99, id="smaller-init-does-not"),
        pytest.param([sidecar(ask(4000)), init(ask(8000)), ask(4000)], 297, id="init-by-sidecar"),
        pytest.param([init(ask(8000)), sidecar(ask(4000)), ask(4000)], 198, id="init-before-it"),
    ],
)
def test_what_a_pod_withholds_at_its_peak(containers: list[ContainerRequest], cost: int) -> None:
    """Init containers run one by one, beside sidecars that started before them."""
    found = chosen(pod(*containers, mode=SOFT))

    assert found.costs[SOFT] == cost


def test_an_open_fleet_only_warns() -> None:
    """Where bigger nodes may come, what nobody serves yet is admitted with the same sentence."""
    request = pod(ask(90000))

    found = mode_for(request, BOTH, settings=DEFAULTS, complete=True)

    assert isinstance(found, ModeChoice)
    assert found.warnings == (refused(request),)
    assert (found.mode, found.source) == (SOFT, ModeSource.BEST)


@pytest.mark.parametrize(
    ("offers", "complete", "why"),
    [
        pytest.param(NOTHING, False, "no GPU inventory yet", id="nothing-known"),
        pytest.param(NOTHING, True, "no GPU inventory yet", id="no-gpu-at-all"),
        pytest.param(BOTH, False, "not every node's inventory is known yet", id="incomplete"),
    ],
)
def test_what_is_not_known_never_refuses(
    offers: Mapping[GpuKind, int], why: str, *, complete: bool
) -> None:
    """No inventory is "unknown", not "no"; the mode stays open to revision."""
    found = mode_for(pod(ask(90000)), offers, settings=CLOSED, complete=complete)

    assert isinstance(found, ModeChoice)
    assert found.why == why
    assert explain_mode(found) == f"hami-core: {why}"
    assert found.source is ModeSource.BEST


def test_mixed_nodes_are_not_judged_by_one_kind() -> None:
    """A node of two and two GPUs of different kinds may serve what neither kind serves alone."""
    offers = fleet((A100_40, SOFT), (A100_80, SOFT), count=2)
    request = pod(ask(10000, count=3))

    found = mode_for(request, offers, settings=CLOSED, complete=True, mixed=True)

    assert isinstance(found, ModeChoice)
    assert refused(request, offers).reason is Reason.TOO_MANY


@pytest.mark.parametrize(
    ("kind", "mib"),
    [
        pytest.param((T4, SOFT), 7680, id="half-of-what-is-there"),
        pytest.param((A100_40, MIG), 19968, id="half-as-hardware-cuts-it"),
    ],
)
def test_percentages_become_mib(kind: tuple[str, Mode], mib: int) -> None:
    """Where all GPUs agree, a percentage is a number; the profile it meant still serves it."""
    translated = translated_percent(pod(ask(percent=50)), fleet(kind))

    assert isinstance(translated, PodRequest)
    assert translated.containers[0].percent is None
    assert translated.containers[0].memory == mib


def test_percentages_of_different_gpus_are_refused_with_amounts() -> None:
    """Where GPUs differ in memory, the user is given the MiB for each model."""
    found = translated_percent(pod(ask(percent=50)), fleet((A100_40, SOFT), (T4, SOFT)))

    assert str(found) == (
        'container "main": 50 percent of a GPU is a different number of MiB on each model; '
        "ask for vgpu-memory instead: 20268 on A100-SXM4-40GB, 7680 on Tesla T4"
    )


def test_percentages_without_inventory_stay() -> None:
    """With no GPU known there is nothing to translate by."""
    request = pod(ask(percent=50))

    assert translated_percent(request, NOTHING) is request


def test_a_percentage_on_mig_is_a_share_of_slots() -> None:
    """Half of a board is the profile with half of its slots, whatever the driver keeps back."""
    found = chosen(pod(ask(percent=50), mode=MIG), {offer(A100_40, mode=MIG): 1})

    assert found.mode_costs[0].profiles == ("3g.20gb",)


@pytest.mark.parametrize("complete", [True, False], ids=["known", "unknown"])
def test_what_no_gpu_in_the_world_has_is_refused_in_any_fleet(complete: bool) -> None:
    """No node to come would help: even an open fleet, or one not seen yet, says so at once."""
    found = mode_for(pod(ask(900_000)), NOTHING, settings=DEFAULTS, complete=complete)

    assert isinstance(found, Findings)
    assert found.first.reason is Reason.MEMORY_SHORT
    assert "largest known GPU" in found.first.what


def test_a_larger_gpu_that_is_here_counts_more_than_the_catalogue() -> None:
    """What stands in the rack is believed, whether we ever heard of it or not."""
    tomorrow = GpuKind(model="Z9", memory=MiB(1_000_000), mode=SOFT, board=None)
    found = mode_for(pod(ask(900_000)), {tomorrow: 1}, settings=CLOSED, complete=True)

    assert isinstance(found, ModeChoice)
