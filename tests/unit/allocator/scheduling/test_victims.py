"""The set of pods to evict is small, and its most important members are spared first."""

import pytest

from allocator.scheduling.victims import IsEnough, Victim, least_victims, most_important_first


def victims(*priorities: int) -> list[Victim]:
    return [Victim(uid=f"p{priority}", priority=priority) for priority in priorities]


def uids(found: tuple[Victim, ...] | None) -> set[str]:
    assert found is not None
    return {victim.uid for victim in found}


def together(*sets: set[str]) -> IsEnough:
    return lambda gone: any(one <= gone for one in sets)


@pytest.mark.parametrize("trials", [0, 256])
def test_the_more_important_of_two_is_spared(trials: int) -> None:
    """Also where there is no time to try all sets."""
    enough = together({"p3", "p1"}, {"p3", "p2"})

    found = least_victims(victims(2, 3, 1), enough, same_gpu=False, trials=trials)

    assert uids(found) == {"p1", "p3"}


@pytest.mark.parametrize("trials", [0, 256])
def test_nobody_is_evicted_who_could_stay(trials: int) -> None:
    """A less important pod that does not help is left alone."""
    found = least_victims(victims(1, 2, 3, 4), together({"p3"}), same_gpu=False, trials=trials)

    assert uids(found) == {"p3"}


def test_where_all_are_not_enough_nobody_is_named() -> None:
    """An eviction that does not help would only do harm."""
    assert least_victims(victims(1, 2), together({"p9"}), same_gpu=False) is None


def test_the_order_is_kube_schedulers() -> None:
    """By priority, then the oldest first."""
    young = Victim(uid="young", priority=1, created="2026-11-21T12:00:00Z")
    old = Victim(uid="old", priority=1, created="2026-11-20T12:00:00Z")
    high = Victim(uid="high", priority=2, created="2026-11-22T12:00:00Z")

    assert most_important_first([young, high, old]) == (high, old, young)
