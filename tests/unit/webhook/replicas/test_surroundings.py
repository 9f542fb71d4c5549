"""What surrounds a review is one object, as long as it is the same."""

import orjson
import pytest

from allocator.model.untrusted import escaped
from tests.builders.hostile_text import HOSTILE_TEXTS
from webhook.replicas.surroundings import MOST_USERS, ReviewUser, ReviewUsers
from webhook.review.admission_review import UserInfo


def test_who_asks_again_is_the_same() -> None:
    """With the same groups; otherwise the last one counts."""
    users = ReviewUsers()
    amy = users.user(UserInfo("amy", ("a", "b")))

    assert users.user(UserInfo("amy", ("a", "b"))) is amy
    assert users.user(UserInfo("bo", ("a", "b"))) is not amy
    other = users.user(UserInfo("amy", ("a",)))
    assert other is not amy
    assert users.user(UserInfo("amy", ("a",))) is other
    assert orjson.loads(b"{%b}" % other.json[:-1]) == {"user": "amy", "groups": ["a"]}


def test_who_is_kept_is_bounded() -> None:
    """However many service accounts a tenant makes, and whatever they are called."""
    users = ReviewUsers()
    for number in range(MOST_USERS + 3):
        users.user(UserInfo(f"u-{number}"))
    assert len(users) == 3

    users.user(UserInfo("u" * 600))
    users.user(UserInfo("amy", ("g" * 600,)))
    users.user(UserInfo("amy", ("",) * 17))
    assert len(users) == 3


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_names_are_escaped(text: str) -> None:
    """They stand between quotes."""
    user = ReviewUser(UserInfo(f"amy{text}", (text,) * 20))

    assert orjson.loads(b"{%b}" % user.json[:-1]) == {
        "user": escaped(f"amy{text}", 253),
        "groups": [escaped(text, 253)] * 16,
    }
