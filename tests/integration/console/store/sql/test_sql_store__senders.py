"""Records with one id from several senders: nobody hides what another one has sent."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.store.opening import open_store
from console.store.store import RecordStore
from tests.builders.records import mutated, refused, stored

FIRST, SECOND = "webhook-a", "webhook-b"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with contextlib.closing(open_store(str(tmp_path / "records.db"))) as opened:
        yield opened


def test_a_record_is_known_by_its_id_and_its_sender(store: RecordStore) -> None:
    """Two ids from two senders, and then each from the other: all four are records."""
    (one, other) = stored(mutated(1), refused(2), sender=FIRST)
    other = replace(other, sender=SECOND)

    assert store.append([one, other]) == 2
    assert store.append([one, other]) == 0
    assert store.append([replace(one, sender=SECOND), other]) == 1
    assert store.append([replace(one, sender=SECOND), replace(other, sender=FIRST)]) == 1
    assert (
        store.append([replace(each, sender=f) for each in (one, other) for f in (FIRST, SECOND)])
        == 0
    )


def test_two_senders_of_one_id_in_one_batch_are_two_records(store: RecordStore) -> None:
    """Twice from one of them is one."""
    (one,) = stored(mutated(1), sender=FIRST)

    assert store.append([one, replace(one, sender=SECOND), one]) == 2
    assert store.append([replace(one, sender="webhook-c"), one]) == 1
