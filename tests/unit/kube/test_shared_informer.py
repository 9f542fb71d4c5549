"""One watch for several parts: each hears of what changed, in its own words."""

from collections.abc import Collection, Mapping

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.shared_informer import SharedInformer

UIDS = st.sampled_from("abcd")
BATCHES = st.lists(st.dictionaries(UIDS, st.none() | st.integers(0, 5)))


class Heard:
    """A part that keeps pictures as it was told of them."""

    def __init__(self) -> None:
        self.picture: Mapping[str, int] = {}

    def know(self, picture: Mapping[str, int], touched: Collection[str]) -> None:
        differ = {
            uid for uid in picture.keys() | self.picture.keys() if self._differs(uid, picture)
        }
        assert differ <= set(touched)
        self.picture = picture

    def _differs(self, uid: str, picture: Mapping[str, int]) -> bool:
        return self.picture.get(uid) != picture.get(uid)


def thing(uid: str, number: int) -> bytes:
    return orjson.dumps({"metadata": {"uid": uid}, "number": number})


def number(raw: bytes) -> int:
    value: int = orjson.loads(raw)["number"]
    return value


def even(raw: bytes) -> int | None:
    return None if number(raw) % 2 else number(raw)


@given(BATCHES)
def test_each_part_has_the_picture_that_a_watch_of_its_own_would_have(
    batches: list[dict[str, int | None]],
) -> None:
    """What is nothing to a part is not there for it, also when it was something before."""
    shared, every, evens = SharedInformer("/things"), Heard(), Heard()
    shared.add(number, every.know)
    shared.add(even, evens.know)
    there: dict[str, int] = {}

    for batch in batches:
        for uid, value in batch.items():
            there.pop(uid, None)
            if value is not None:
                there[uid] = value
        made = {uid: shared.decode(thing(uid, value)) for uid, value in there.items()}
        shared.publish(made, batch.keys())

    assert every.picture == there
    assert evens.picture == {uid: value for uid, value in there.items() if value % 2 == 0}


def test_pictures_are_not_edited_afterwards() -> None:
    """Whoever goes through one in steps may keep it."""
    shared, heard = SharedInformer("/things"), Heard()
    shared.add(number, heard.know)
    shared.publish({"a": shared.decode(thing("a", 1))}, {"a"})
    first = heard.picture

    shared.publish({}, {"a"})

    assert first == {"a": 1}


def test_what_has_no_uid_is_not_understood() -> None:
    """The watch counts it and goes on."""
    with pytest.raises(msgspec.ValidationError, match="uid"):
        SharedInformer("/things").decode(b'{"metadata": {}}')
