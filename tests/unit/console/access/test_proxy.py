"""Headers of a proxy that is known by its certificate."""

import pytest

from console.access.identity import UserIdentity
from console.access.proxy import ProxyRules, proxied_identity

RULES = ProxyRules(names=frozenset({"proxy"}))
COMMAS = ProxyRules(names=frozenset({"proxy"}), separator=",")


def read(*headers: tuple[str, str], rules: ProxyRules = RULES) -> UserIdentity | None:
    return proxied_identity([(name.encode(), value.encode()) for name, value in headers], rules)


def test_a_person_with_groups() -> None:
    """Each header is one group, and everybody is authenticated."""
    found = read(
        ("x-forwarded-user", "amy"), ("X-Forwarded-Group", "a"), ("x-forwarded-group", "b,c")
    )

    assert found == UserIdentity(user="amy", groups=("a", "b,c", "system:authenticated"))


def test_groups_in_one_header() -> None:
    """Where the proxy is said to join them."""
    found = read(("x-forwarded-user", "amy"), ("x-forwarded-group", "a, b,,a"), rules=COMMAS)

    assert found == UserIdentity(user="amy", groups=("a", "b", "system:authenticated"))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-forwarded-user", "")],
        [("x-forwarded-user", "amy"), ("x-forwarded-user", "amy")],
        [("x-forwarded-user", "amy"), ("X-Forwarded-User", "root")],
        [("x_forwarded_user", "amy")],
        [("x-forwarded-user", "system:admin")],
        [("x-forwarded-user", " system:kube-scheduler")],
        [("x-forwarded-user", "amy"), ("x-forwarded-group", "system:masters")],
        [("x-forwarded-user", "amy"), ("x-forwarded-group", " system:nodes ")],
        [("x-forwarded-user", "a\u202emy")],
        [("x-forwarded-user", "a\x00my")],
        [("x-forwarded-user", "a\tmy")],
        [("x-forwarded-user", "amy"), ("x-forwarded-group", "g\x1b[0m")],
        [("x-forwarded-user", "a" * 2000)],
        [("x-forwarded-user", "amy"), *[("x-forwarded-group", str(n)) for n in range(3000)]],
    ],
)
def test_whom_a_proxy_does_not_name_plainly_is_nobody(headers: list[tuple[str, str]]) -> None:
    """Two names, no name, a name of the cluster's own, or one that cannot be shown."""
    assert read(*headers) is None


def test_bytes_that_are_no_text_are_nobody() -> None:
    """Latin-1 is not guessed."""
    assert proxied_identity([(b"x-forwarded-user", b"\xff\xfe")], RULES) is None


def test_other_names_of_headers() -> None:
    """The ones by default say nothing then."""
    rules = ProxyRules(names=frozenset(), user_header="Remote-User", group_header="Remote-Group")

    assert read(("x-forwarded-user", "amy"), rules=rules) is None
    found = read(("remote-user", "amy"), ("remote-group", "a"), rules=rules)
    assert found == UserIdentity(user="amy", groups=("a", "system:authenticated"))
