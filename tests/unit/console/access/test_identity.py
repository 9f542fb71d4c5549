"""Names of users are bounded, whoever gave them."""

import pytest

from console.access.identity import LONGEST_NAME, MOST_EXTRA, MOST_GROUPS, UserIdentity


@pytest.mark.parametrize(
    ("identity", "bounded"),
    [
        (UserIdentity(user="amy", groups=("a",), extra=(("k", ("v",)),)), True),
        (UserIdentity(user="a" * LONGEST_NAME, groups=("g",) * MOST_GROUPS), True),
        (UserIdentity(user="a", extra=(("k", ()),) * MOST_EXTRA), True),
        (UserIdentity(user="a", extra=(("k", ("v",) * MOST_EXTRA**2),)), True),
        (UserIdentity(user="a", extra=(("k" * LONGEST_NAME, ("v" * LONGEST_NAME,)),)), True),
        (UserIdentity(user="a", extra=(("k" * (LONGEST_NAME + 1), ()),)), False),
        (UserIdentity(user="a", extra=(("k", ("v" * (LONGEST_NAME + 1),)),)), False),
        (UserIdentity(user="a", groups=("g\0",)), False),
        (UserIdentity(user=""), False),
        (UserIdentity(user="a" * (LONGEST_NAME + 1)), False),
        (UserIdentity(user="a\0b"), False),
        (UserIdentity(user="a", uid="u" * (LONGEST_NAME + 1)), False),
        (UserIdentity(user="a", groups=("g",) * (MOST_GROUPS + 1)), False),
        (UserIdentity(user="a", groups=("g" * (LONGEST_NAME + 1),)), False),
        (UserIdentity(user="a", extra=(("k", ("v",)),) * (MOST_EXTRA + 1)), False),
        (UserIdentity(user="a", extra=(("k", ("v",) * (MOST_EXTRA**2 + 1)),)), False),
    ],
)
def test_only_names_as_users_have_are_taken(identity: UserIdentity, *, bounded: bool) -> None:
    """Others would be kept in caches and cookies, and told to everybody."""
    assert identity.is_bounded is bounded


def test_values_are_found_by_their_key() -> None:
    """None where there is no such key."""
    identity = UserIdentity(user="a", extra=(("k", ("v", "w")),))

    assert identity.values("k") == ("v", "w")
    assert identity.values("l") == ()
