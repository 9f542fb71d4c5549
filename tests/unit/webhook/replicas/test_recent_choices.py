"""The mode of equal requests is chosen once, and each time as it would be by itself."""

from dataclasses import replace

import pytest
from msgspec import structs

from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import Prefer, Settings
from allocator.model.decision import ModeChoice, ModeSource
from allocator.model.request import Filters, Mode, PodRequest
from tests.builders.model import A100_40, T4, ask, nodes_of, snapshot
from tests.builders.model import pod as asking_pod
from webhook.admission.choice import ChosenMode, chosen_mode
from webhook.admission.context import AdmissionContext
from webhook.replicas.recent_choices import MOST_CHOICES, RecentChoices

MIXED = snapshot(nodes_of(2, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n1"))
ONE = AdmissionContext(settings=Settings(), snapshot=MIXED)
CONTEXTS = {
    "another-fleet": structs.replace(ONE, snapshot=snapshot(nodes_of(2, T4))),
    "no-fleet": structs.replace(ONE, snapshot=snapshot()),
    "incomplete": structs.replace(ONE, snapshot=snapshot(complete=False)),
    "one-node-has-several-kinds": structs.replace(ONE, snapshot=replace(MIXED, mixed=True)),
    "another-node-is-unknown": structs.replace(ONE, snapshot=replace(MIXED, complete=False)),
    "settings": structs.replace(ONE, settings=Settings(prefer=Prefer.DENSITY)),
    "namespace-prefers": structs.replace(ONE, namespace=NamespacePolicy(prefer=Prefer.ISOLATION)),
    "namespace-demands": structs.replace(ONE, namespace=NamespacePolicy(min_isolation="mig")),
    "nothing-else": structs.replace(ONE, high_priority=True),
}


def request(memory: int = 3000, **fields: object) -> PodRequest:
    return structs.replace(asking_pod(ask(memory=memory)), **fields)


def alone(asked: PodRequest, context: AdmissionContext) -> ChosenMode:
    return chosen_mode(asked, context, None)


def test_equal_requests_get_the_same_choice() -> None:
    """The same object, with the request that was first."""
    recent, first = RecentChoices(), request()
    chosen = recent.chosen_mode(first, ONE, None)

    assert chosen == alone(first, ONE)
    assert chosen.recorded.request is first
    assert recent.chosen_mode(request(), structs.replace(ONE), None) is chosen
    assert recent.chosen_mode(request(4000), ONE, None) == alone(request(4000), ONE)
    assert recent.chosen_mode(request(), ONE, None) is chosen


@pytest.mark.parametrize("other", CONTEXTS.values(), ids=CONTEXTS)
def test_what_else_decides_is_heeded(other: AdmissionContext) -> None:
    """Whichever comes first, and when it is as before again."""
    recent = RecentChoices()
    # More than one node has, of which each container fits.
    several = asking_pod(ask(memory=39_000, count=5), ask(memory=39_000, count=5, name="second"))
    for context in (ONE, other, ONE, other, other):
        for asked in (request(), request(60_000), request(10**6), several):
            assert recent.chosen_mode(asked, context, None) == alone(asked, context)


def test_what_an_earlier_pass_chose_stays() -> None:
    """It is neither remembered nor overruled by what is."""
    recent, earlier = RecentChoices(), ModeChoice(Mode.HAMI_CORE, ModeSource.ONLY, "because")
    for chosen_before in (None, earlier, None):
        chosen = recent.chosen_mode(request(), ONE, chosen_before)
        assert chosen == chosen_mode(request(), ONE, chosen_before)
    assert len(recent) == 1


def test_what_is_kept_is_bounded() -> None:
    """However many amounts a tenant thinks of."""
    recent = RecentChoices()
    for memory in range(1000, 1000 + MOST_CHOICES + 10):
        assert recent.chosen_mode(request(memory), ONE, None) == alone(request(memory), ONE)

    assert len(recent) == 10


@pytest.mark.parametrize(
    "large",
    [
        asking_pod(ask(name="c" * 600)),
        asking_pod(*[ask(name=f"c{n}") for n in range(9)]),
        request(filters=Filters(models=("A" * 300, "B" * 300))),
        request(profile="p" * 600),
    ],
    ids=["name", "containers", "models", "profile"],
)
def test_what_is_large_is_not_kept(large: PodRequest) -> None:
    """A tenant decides how long names are."""
    recent = RecentChoices()

    assert recent.chosen_mode(large, ONE, None) == alone(large, ONE)
    assert len(recent) == 0
