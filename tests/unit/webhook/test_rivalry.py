"""What gangs want of each other is read from the pods that wait, and in doubt nothing is."""

import orjson
import pytest

from allocator.core.commitment import Wanted
from allocator.core.podfacts import seen
from allocator.core.settings import DEFAULTS, Prefer
from allocator.model.request import Mode
from tests.builders import A30, nodes_of, snapshot
from tests.pods import MEMORY, MODE, NUMBER, Json, admitted, container, pod, received
from tests.preemption import cluster
from webhook.core.mutate import Surroundings
from webhook.shell.pending import Pending, unbound
from webhook.shell.rivalry import Rivalry

AROUND = Surroundings(
    settings=DEFAULTS,
    snapshot=snapshot(nodes_of(1, A30, mode=Mode.MIG)),
    prefer=Prefer.ISOLATION,
    host_paths=True,
)


def waiting(limits: Json) -> Json:
    written = received(pod(container(limits=limits), annotations={MODE: "mig"}))
    written["metadata"]["uid"] = "u"
    return written


def wanted(found: Json, *, uid: str = "u") -> Wanted | None:
    """Return what the pod of a gang wants, whom a watch has told of as *uid*."""
    pending, raw = Pending(), orjson.dumps(found)
    stored = unbound(raw)
    assert stored is not None
    pending.know({"u": stored}, ["u"])
    rivalry = Rivalry(index=cluster, pending=pending, around=lambda _: AROUND)
    found["metadata"]["uid"] = uid
    return rivalry().wanted(seen(orjson.dumps(found)))


def test_what_a_waiting_member_asked_for_is_what_it_wants() -> None:
    """By the same words as a bind, and on the same terms."""
    found = wanted(admitted(waiting({NUMBER: 1, MEMORY: 11000}), AROUND))

    assert found is not None
    assert (found.uid, found.mode) == ("u", Mode.MIG)
    assert [ask.memory for ask in found.request.containers] == [11000]
    rivalry = Rivalry(index=cluster, pending=Pending(), around=lambda _: AROUND)
    assert rivalry().terms("team-a").prefer is Prefer.ISOLATION


@pytest.mark.parametrize(
    ("limits", "uid"),
    [
        pytest.param({NUMBER: 1, MEMORY: "lots"}, "u", id="unreadable"),
        pytest.param({"cpu": 1}, "u", id="nothing"),
        pytest.param({NUMBER: 1, MEMORY: 11000}, "another", id="made-anew"),
    ],
)
def test_who_cannot_be_read_wants_nothing(limits: Json, uid: str) -> None:
    """A tenant's words neither evict anybody nor end a duty."""
    assert wanted(waiting(limits), uid=uid) is None
