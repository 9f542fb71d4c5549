"""A namespace that demands isolation: what its pods become, and what they are told."""

import pytest
from msgspec.structs import replace

from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import FleetScope, NodeAgent, Prefer, Settings
from allocator.model.decision import ModeSource, Reason
from allocator.model.gpu import Node
from allocator.model.request import Mode
from tests.builders.model import A100_40, T4, nodes_of, snapshot
from tests.builders.pods import (
    CORES,
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
    Json,
    admitted,
    container,
    decided,
    pod,
    received,
    typed,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm, decide
from webhook.admission.outcome import Outcome, Refused, Rewritten

HARD = nodes_of(8, A100_40, mode=Mode.MIG, name="hard")
SOFT = nodes_of(8, A100_40, name="soft")
SMALL: dict[str, object] = {NUMBER: 1, MEMORY: 5000}  # hami-core is by far the cheaper mode
ISOLATE, LIBRARY = "vgpu-admission.io/isolate", "vgpu-admission.io/library"


def demanding(
    level: str, *nodes: Node, prefer: Prefer | None = None, settings: Settings | None = None
) -> AdmissionContext:
    return AdmissionContext(
        settings=settings or Settings(fleet=FleetScope.CLOSED),
        snapshot=snapshot(*(nodes or (HARD, SOFT))),
        host_paths=True,
        namespace=NamespacePolicy(prefer=prefer, min_isolation=level),
    )


def mode_of(outcome: Outcome) -> tuple[Mode, ModeSource]:
    assert isinstance(outcome, Rewritten), outcome
    return outcome.choice.mode, outcome.choice.source


def refusal(written: Json, context: AdmissionContext) -> tuple[Reason, str]:
    outcome = decided(written, context)
    assert isinstance(outcome, Refused), outcome
    return outcome.findings.first.reason, outcome.findings.first.remedy


@pytest.mark.parametrize("prefer", [None, Prefer.DENSITY])
@pytest.mark.parametrize("limits", [SMALL, SMALL | {NUMBER: 2}, {NUMBER: 1, PERCENT: 13}])
def test_a_pod_that_names_no_mode_gets_the_only_one(
    prefer: Prefer | None, limits: dict[str, object]
) -> None:
    """Neither its cost nor a preference of the namespace counts then."""
    written = pod(container(limits=limits))

    assert mode_of(decided(written, demanding("mig", prefer=prefer))) == (
        Mode.MIG,
        ModeSource.ONLY,
    )
    assert mode_of(decided(written, demanding("hami-core")))[0] is Mode.HAMI_CORE


def test_a_second_pass_changes_nothing() -> None:
    """And validation agrees."""
    context = demanding("mig")
    found = admitted(received(pod(container(limits=SMALL))), context)

    assert admitted(found, context) == found
    assert isinstance(confirm(typed(found), context), Rewritten)


def test_a_demand_between_two_passes_changes_nothing() -> None:
    """What the first pass wrote fits the mode that it chose, and that one is strong enough."""
    written = pod(container(limits=SMALL | {MEMORY: 1000}))
    found = admitted(received(written), demanding("hami-core"))

    assert found["metadata"]["annotations"]["vgpu-admission.io/mode-source"] == "best"
    assert admitted(found, demanding("mig")) == found


def test_what_was_asked_for_stays_what_was_asked_for() -> None:
    """The demand is of the namespace, not of the pod."""
    outcome = decided(pod(container(limits=SMALL)), demanding("mig"))

    assert isinstance(outcome, Rewritten)
    assert (outcome.request.named_mode, outcome.request.mode_key) == (None, None)


def test_what_an_earlier_pass_chose_must_be_strong_enough() -> None:
    """Its evidence is an annotation, which anybody may write."""
    found = admitted(received(pod(container(limits=SMALL))), demanding("hami-core"))

    outcome = decide(typed(found), demanding("mig"))

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.ISOLATION


@pytest.mark.parametrize(
    ("level", "limits", "annotations", "remedy"),
    [
        pytest.param("mig", SMALL, {MODE: "hami-core"}, f"remove {MODE}", id="named"),
        pytest.param(
            "mig",
            {NUMBER: 1, CORES: 100},
            {LIBRARY: "off"},
            f"remove {LIBRARY}",
            id="without-the-library",
        ),
        pytest.param(
            "mig",
            {NUMBER: 1, CORES: 100},
            {LIBRARY: "off", MODE: "hami-core"},
            f"remove {LIBRARY} and {MODE}",
            id="named-without-the-library",
        ),
        pytest.param("hami-core", {GPU_MEM: 4}, {}, f'set {ISOLATE} to "true"', id="counted-only"),
        pytest.param(
            "mig",
            {GPU_MEM: 4},
            {},
            f"ask for {NUMBER} and its memory in MiB instead of {GPU_MEM}",
            id="gpushare",
        ),
        pytest.param(
            "mig",
            {GPU_MEM: 4},
            {ISOLATE: "true"},
            f"ask for {NUMBER} and its memory in MiB instead of {GPU_MEM}",
            id="gpushare-isolated",
        ),
    ],
)
def test_a_weaker_mode_is_refused(
    level: str, limits: dict[str, object], annotations: dict[str, str], *, remedy: str
) -> None:
    """Who does what the sentence says is admitted, or learns that nothing helps."""
    written = pod(container(limits=limits), annotations=annotations)

    assert refusal(written, demanding(level)) == (Reason.ISOLATION, remedy)


@pytest.mark.parametrize(
    ("level", "limits", "annotations"),
    [
        ("memory-only", {GPU_MEM: 4}, {}),
        ("hami-core", {GPU_MEM: 4}, {ISOLATE: "true"}),
        ("hami-core", SMALL, {MODE: "hami-core"}),
        ("hami-core", SMALL, {MODE: "mig"}),
        ("mig", SMALL, {MODE: "mig"}),
        ("mig", SMALL, {"vgpu-admission.io/mig-profile": "2g.10gb"}),
        ("hami-core", {NUMBER: 1, CORES: 100}, {LIBRARY: "off"}),
    ],
)
def test_a_mode_that_is_strong_enough_is_admitted(
    level: str, limits: dict[str, object], annotations: dict[str, str]
) -> None:
    """As if nobody demanded anything."""
    written = pod(container(limits=limits), annotations=annotations)
    free = replace(demanding(level), namespace=NamespacePolicy())

    assert mode_of(decided(written, demanding(level))) == mode_of(decided(written, free))


def test_a_fleet_without_the_demanded_mode_says_who_can_help() -> None:
    """The user can change neither the fleet nor the namespace."""
    written = pod(container(limits=SMALL))

    for nodes in ((SOFT,), (nodes_of(1, T4, name="t4"),)):
        reason, remedy = refusal(written, demanding("mig", *nodes))
        assert reason is Reason.MODE_UNAVAILABLE
        assert remedy.startswith("ask an administrator for such GPUs")
    too_large = pod(container(limits={NUMBER: 1, MEMORY: 40400}))
    reason, remedy = refusal(too_large, demanding("mig"))
    assert (reason, "remove" in remedy) == (Reason.NO_GEOMETRY, False)


def test_an_open_fleet_waits_for_the_demanded_mode() -> None:
    """Nothing known serves yet, and the mode stays the one that is demanded."""
    outcome = decided(pod(container(limits=SMALL)), demanding("mig", SOFT, settings=Settings()))

    assert mode_of(outcome) == (Mode.MIG, ModeSource.ONLY)


def test_the_upstream_plugin_gets_the_demanded_mode_too() -> None:
    """Its percentages become MiB of the GPUs in that mode."""
    settings = Settings(node_agent=NodeAgent.UPSTREAM)
    written = pod(container(limits={NUMBER: 1, PERCENT: 10}))

    outcome = decided(written, demanding("mig", settings=settings))

    assert mode_of(outcome) == (Mode.MIG, ModeSource.ONLY)
    assert isinstance(outcome, Rewritten)
    assert outcome.request.containers[0].memory is not None


def test_pods_without_a_request_are_not_asked() -> None:
    """An unreadable demand concerns GPUs only."""
    outcome = decided(pod(container(limits={})), demanding("hard"))

    assert not isinstance(outcome, Refused)
    assert refusal(pod(container(limits=SMALL)), demanding("hard"))[0] is Reason.ISOLATION
