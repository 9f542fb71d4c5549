"""What a namespace says of the modes of its pods, and who is refused for it."""

import pytest

from allocator.config.namespace_policy import (
    ANY_MODE,
    NamespacePolicy,
    isolation_finding,
    namespace_policy,
)
from allocator.config.settings import Prefer
from allocator.model.decision import Reason
from allocator.model.request import Mode
from tests.builders.model import ask, pod

PREFER = "vgpu-admission.io/prefer"
DEMAND = "vgpu-admission.io/min-isolation"
ORDER = (Mode.MEMORY_ONLY, Mode.HAMI_CORE, Mode.MIG)


def test_annotations_are_read() -> None:
    """An unknown preference is none; any demand counts, even one that nobody understands."""
    assert namespace_policy({}) == ANY_MODE
    assert namespace_policy({PREFER: "dense"}) == ANY_MODE
    assert namespace_policy({PREFER: "density"}) == NamespacePolicy(prefer=Prefer.DENSITY)
    assert namespace_policy({DEMAND: ""}) == NamespacePolicy(min_isolation="")
    assert namespace_policy({DEMAND: "x"}) == NamespacePolicy(min_isolation="x")


@pytest.mark.parametrize("demanded", ORDER)
@pytest.mark.parametrize("mode", ORDER)
def test_no_mode_below_the_demand(demanded: Mode, mode: Mode) -> None:
    """The order is memory-only, hami-core, mig, for a mode that is named and for a final one."""
    policy = NamespacePolicy(min_isolation=demanded)
    admitted = ORDER.index(mode) >= ORDER.index(demanded)

    assert (isolation_finding(policy, pod(ask(1), mode=mode), None) is None) is admitted
    assert (isolation_finding(policy, pod(ask(1)), mode) is None) is admitted
    assert isolation_finding(ANY_MODE, pod(ask(1)), mode) is None


def test_the_remedy_is_what_its_reader_can_do() -> None:
    """Amounts on a command line have no annotation; a mode that admission chose names nothing."""
    policy = NamespacePolicy(min_isolation="mig")
    named = isolation_finding(policy, pod(ask(1), mode=Mode.HAMI_CORE), None)
    chosen = isolation_finding(policy, pod(ask(1)), Mode.HAMI_CORE)

    assert named is not None
    assert chosen is not None
    assert named.remedy == "use mode mig"
    assert chosen.remedy == "delete the pod so that it is created anew"


def test_an_open_mode_is_not_weak_yet() -> None:
    """It becomes one that is strong enough."""
    assert isolation_finding(NamespacePolicy(min_isolation="mig"), pod(ask(1)), None) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        " mig",
        "mig ",
        "MIG",
        "mig,hami-core",
        "hami_core",
        "hard",
        "none",
        "memory-only\n",
        "\uff4d\uff49\uff47",
        "mig\x00",
        "{}",
        "m" * 262144,
    ],
)
@pytest.mark.parametrize("mode", [None, Mode.MIG])
def test_an_unreadable_demand_refuses_every_pod(text: str, mode: Mode | None) -> None:
    """Who misspells it must notice, and nobody may slip through meanwhile."""
    finding = isolation_finding(NamespacePolicy(min_isolation=text), pod(ask(1)), mode)

    assert finding is not None
    assert finding.reason is Reason.ISOLATION
    assert "memory-only, hami-core, mig" in finding.what
    assert DEMAND in finding.what
    assert len(str(finding)) < 400
    assert str(finding).isprintable()
