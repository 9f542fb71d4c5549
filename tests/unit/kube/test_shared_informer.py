"""One watch for several parts: each hears of what changed, in its own words."""

from collections.abc import Mapping

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.shared_informer import SharedInformer

UIDS = st.sampled_from("abcd")
BATCHES = st.lists(st.dictionaries(UIDS, st.none() | st.integers(0, 5)))


class Metadata(msgspec.Struct):
    uid: str


class Thing(msgspec.Struct):
    metadata: Metadata
    number: int = 0


class Heard:
    """A part that puts together what it is told."""

    def __init__(self) -> None:
        self.picture: dict[str, int] = {}

    def know(self, changes: Mapping[str, int | None]) -> None:
        for uid, value in changes.items():
            self.picture.pop(uid, None)
            if value is not None:
                self.picture[uid] = value


def informer() -> SharedInformer[Thing]:
    decode = msgspec.json.Decoder(Thing).decode
    return SharedInformer("/things", decode=decode, uid=lambda thing: thing.metadata.uid)


def thing(uid: str, number: int) -> bytes:
    return orjson.dumps({"metadata": {"uid": uid}, "number": number})


def number(found: Thing, _: bytes) -> int:
    return found.number


def even(found: Thing, _: bytes) -> int | None:
    return None if found.number % 2 else found.number


@given(BATCHES)
def test_each_part_has_the_picture_that_a_watch_of_its_own_would_have(
    batches: list[dict[str, int | None]],
) -> None:
    """What is nothing to a part is not there for it, also when it was something before."""
    shared, every, evens = informer(), Heard(), Heard()
    shared.add(number, every.know)
    shared.add(even, evens.know)
    there: dict[str, int] = {}

    for batch in batches:
        for uid, value in batch.items():
            there.pop(uid, None)
            if value is not None:
                there[uid] = value
        shared.publish(
            {
                uid: None if value is None else shared.decode(thing(uid, value))
                for uid, value in batch.items()
            }
        )

    assert every.picture == there
    assert evens.picture == {uid: value for uid, value in there.items() if value % 2 == 0}


def test_an_object_is_parsed_once_for_all() -> None:
    """Parts look at what was parsed; the text is there for what they read later."""
    shared, parsed = informer(), list[tuple[Thing, bytes]]()
    for _ in range(2):
        shared.add(lambda found, raw: parsed.append((found, raw)), lambda _: None)

    shared.decode(thing("a", 1))

    (first, raw), (second, _) = parsed
    assert first is second
    assert raw == thing("a", 1)


def test_what_has_no_uid_is_not_understood() -> None:
    """The watch counts it and goes on."""
    with pytest.raises(msgspec.ValidationError, match="uid"):
        informer().decode(b'{"metadata": {}}')
