"""A cache that neither grows nor keeps for ever."""

from console.access.expiring_cache import ExpiringCache


def test_a_value_lives_until_its_time() -> None:
    """At the very second it is gone."""
    cache: ExpiringCache[str, int] = ExpiringCache(2)
    cache.put("a", 1, 10.0)

    assert cache.get("a", 9.9) == 1
    assert cache.get("a", 10.0) is None
    assert len(cache) == 0


def test_the_one_that_was_used_longest_ago_goes_first() -> None:
    """Reading counts as use."""
    cache: ExpiringCache[str, int] = ExpiringCache(2)
    cache.put("a", 1, 10.0)
    cache.put("b", 2, 10.0)
    cache.get("a", 0.0)
    cache.put("c", 3, 10.0)

    assert [cache.get(key, 0.0) for key in "abc"] == [1, None, 3]


def test_a_value_that_is_put_again_is_the_latest() -> None:
    """So a name that is used again and again is not forgotten before others."""
    cache: ExpiringCache[str, int] = ExpiringCache(2)
    for key in "aba":
        cache.put(key, 1, 10.0)
    cache.put("c", 1, 10.0)

    assert [cache.get(key, 0.0) for key in "abc"] == [1, None, 1]


def test_what_is_dropped_is_gone() -> None:
    """Also if it was never there."""
    cache: ExpiringCache[str, int] = ExpiringCache(2)
    cache.put("a", 1, 10.0)
    cache.drop("a")
    cache.drop("b")

    assert cache.get("a", 0.0) is None
