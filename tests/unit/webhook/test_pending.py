"""Pods without a node, as a watch tells of them."""

import orjson
import pytest

from tests.bindings import stored as kept
from tests.pods import pod
from webhook.shell.pending import Pending, stored

POD = kept(pod())


def known(*raw: bytes) -> Pending:
    pending = Pending()
    pending.know({found.place: found for found in map(stored, raw)})
    return pending


def test_a_pod_is_known_by_its_place() -> None:
    """The namespace counts, and a later picture is all there is."""
    pending = known(orjson.dumps(POD))

    found = pending.pod("team-a", "p")

    assert found is not None
    assert found.uid == POD["metadata"]["uid"]
    assert pending.pod("team-b", "p") is None
    pending.know({})
    assert pending.pod("team-a", "p") is None


def test_nothing_is_known_to_begin_with() -> None:
    """Then every pod is asked for."""
    assert Pending().pod("team-a", "p") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"containers": "none"}}, id="containers"),
        pytest.param({"metadata": {"namespace": "team-a", "name": "p"}}, id="no-uid"),
    ],
)
def test_a_pod_that_cannot_be_read_is_not_known(change: dict[str, object]) -> None:
    """It is asked for, and whoever asks says what is wrong with it."""
    assert known(orjson.dumps(POD | change)).pod("team-a", "p") is None


def test_what_has_no_place_is_no_pod() -> None:
    """The watch notes it and goes on."""
    with pytest.raises(ValueError, match="metadata"):
        stored(b"{}")
