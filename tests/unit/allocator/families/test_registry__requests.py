"""What follows from the family of a request: its modes, and which vocabularies our agent serves."""

import msgspec
import pytest

from allocator.catalog.vocabularies import (
    GPUSHARE,
    HAMI,
    METAX_GPU,
    METAX_SGPU,
    VOCABULARIES,
    VOLCANO,
)
from allocator.config.settings import DEFAULTS, NodeAgent
from allocator.families.metax import METAX_FAMILY, load_modes
from allocator.families.nvidia import NVIDIA_FAMILY
from allocator.families.registry import (
    agent_vocabularies,
    family_modes,
    family_named,
    family_of,
    modes_of,
    usual_mode,
)
from allocator.model.request import METAX, Mode, PodRequest
from tests.builders.acme import ACME_WORDS, known_family
from tests.builders.model import ask, pod

MIG, SOFT = Mode.MIG, Mode.HAMI_CORE


def metax(request: PodRequest) -> PodRequest:
    return msgspec.structs.replace(request, family=METAX)


def test_our_agent_serves_the_vocabularies_of_gpus_that_it_reports() -> None:
    """In their order; those of a family that is read from Nodes have another plugin."""
    with known_family():
        every = (METAX_SGPU, HAMI, ACME_WORDS, VOLCANO, METAX_GPU, GPUSHARE)
        assert agent_vocabularies(every) == (HAMI, VOLCANO, GPUSHARE)
    assert agent_vocabularies(()) == ()
    assert not {METAX_GPU, METAX_SGPU} & set(agent_vocabularies(VOCABULARIES))


@pytest.mark.parametrize("agent", NodeAgent)
def test_a_family_that_is_read_from_nodes_is_never_served_by_our_agent(agent: NodeAgent) -> None:
    """Whatever the settings say of the nodes of the others."""
    settings = msgspec.structs.replace(DEFAULTS, node_agent=agent)

    assert METAX_FAMILY.served_by(settings) is NodeAgent.UPSTREAM
    assert NVIDIA_FAMILY.served_by(settings) is agent


@pytest.mark.parametrize(
    ("request_", "default", "usual"),
    [
        (pod(ask(1000)), MIG, MIG),
        (pod(ask(1000)), SOFT, SOFT),
        (pod(ask(1000, count=2)), MIG, SOFT),
        (pod(ask(1000, count=2)), SOFT, SOFT),
        (pod(ask(1000), ask(1000, count=2, name="second")), MIG, SOFT),
        (pod(ask(1000), ask(1000, name="second")), MIG, MIG),
        (pod(ask(1000)), Mode.MPS, SOFT),  # which no request gets that does not name it
        (pod(ask(1000)), Mode.MEMORY_ONLY, SOFT),
        (metax(pod(ask(1000))), MIG, Mode.SGPU),
        (metax(pod(ask(1000))), SOFT, Mode.SGPU),
        (metax(pod(ask(1000, count=2))), MIG, Mode.SGPU),
    ],
)
def test_the_usual_mode_is_one_that_the_family_tries(
    request_: PodRequest, default: Mode, usual: Mode
) -> None:
    """The site's default where that is one of them; several GPUs exchange nothing in mode mig."""
    assert usual_mode(request_, default) is usual


@pytest.mark.parametrize("mode", Mode)
def test_a_named_mode_is_the_only_one(mode: Mode) -> None:
    """Whatever its family would try."""
    assert modes_of(pod(ask(1000), mode=mode)) == (mode,)
    assert modes_of(metax(pod(ask(1000), mode=mode))) == (mode,)


def test_without_a_name_the_strongest_isolation_comes_first() -> None:
    """MetaX's GPUs have one way to be shared."""
    assert modes_of(pod(ask(1000))) == (MIG, SOFT)
    assert modes_of(metax(pod(ask(1000)))) == (Mode.SGPU,)


def test_no_two_families_have_a_mode_of_gpus_in_common() -> None:
    """By its mode alone, a GPU that is free for one of them would look free for the other."""
    assert set(METAX_FAMILY.gpu_modes) == {Mode.SGPU, Mode.NATIVE}
    assert set(NVIDIA_FAMILY.gpu_modes) == {MIG, SOFT, Mode.MPS}
    for family in (METAX_FAMILY, NVIDIA_FAMILY):
        assert set(family.default_modes) <= set(family.gpu_modes)


def test_a_family_has_a_mode_of_nodes_where_its_operator_gives_them_one() -> None:
    """MetaX's does, in a ConfigMap; acme has an inventory and no such ConfigMap."""
    with known_family():
        found = family_modes()

    assert list(found) == [METAX]
    source = found[METAX]
    assert (source.namespace, source.name) == ("metax-operator", "metax-device-config")
    assert source.load is load_modes


def test_an_unknown_family_is_an_error() -> None:
    """No GPU has one, because readers check the name."""
    assert family_named(METAX) is METAX_FAMILY
    assert family_of(pod(ask(1000))) is NVIDIA_FAMILY
    with pytest.raises(KeyError):
        family_named("acme")
