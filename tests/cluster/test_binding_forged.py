"""Bindings nobody should post: replayed, forged, or of pods that can have no node any more."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson
import pytest

from tests.builders.bindings import answered, binding, review
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import wait_for
from tests.cluster.binds import bind, denied, emptied, make, promised, two_boards
from tests.cluster.installation import PODS, Installation

PATH = "/mutate/bindings"


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation of two replicas with one GPU to cut and one to share."""
    with two_boards(programs, tmp_path_factory.mktemp("forged")) as found:
        yield found


@pytest.fixture
def team(site: Installation) -> Iterator[str]:
    """Return a namespace that opted in; its pods and promises go with the test."""
    with emptied(site) as found:
        yield found


def test_an_exact_replay_changes_nothing(site: Installation, team: str) -> None:
    """The same Binding once more, uid and all: refused, and the pod keeps its one entry."""
    uid = make(site, team, "p", mode="hami-core")["metadata"]["uid"]
    bind(site, team, "p", node="soft", uid=uid)
    pod, entries = site.api.get(f"{PODS.format(team)}/p"), promised(site, "soft")

    for _ in range(3):  # before and after the replicas have heard that it is bound
        assert denied(site, team, "p", node="soft", uid=uid)[0] == 409

    assert len(entries) == 1
    assert promised(site, "soft") == entries
    assert site.api.get(f"{PODS.format(team)}/p") == pod


def no_more(site: Installation, team: str, state: str) -> str:
    """Make pod ``p``, bring it into a *state* in which nobody may bind it, and return its uid."""
    gates = [{"name": "example.com/wait"}] if state == "gated" else []
    stays = ["example.com/stays"] if state == "deleting" else []
    written = pod(container(limits={NUMBER: 1, MEMORY: 6000}), schedulingGates=gates)
    written["metadata"] |= {"annotations": {MODE: "hami-core"}, "finalizers": stays}
    uid: str = site.stored(team, written)["metadata"]["uid"]
    place = f"{PODS.format(team)}/p"
    if state == "finished":
        site.api.patch(f"{place}/status", {"status": {"phase": "Succeeded"}})
    elif state == "bound":
        bind(site, team, "p", node="soft")
    elif state in {"deleting", "gone"}:
        site.api.delete(place, {"gracePeriodSeconds": 0})
    return uid


def let_go(site: Installation, team: str) -> None:
    """Let a pod that is being deleted be gone."""
    for found in site.api.get(PODS.format(team))["items"]:
        place = f"{PODS.format(team)}/{found['metadata']['name']}"
        site.api.patch(place, {"metadata": {"finalizers": None}})


WHY = {
    "finished": "has ended",
    "deleting": "is being deleted",
    "gated": "has scheduling gates",
    "bound": 'is already bound to "soft"',
    "gone": "does not exist",
}


@pytest.mark.parametrize("state", ["finished", "deleting", "gated"])
def test_who_may_not_be_bound_is_promised_nothing(
    site: Installation, team: str, *, state: str
) -> None:
    """The registry refuses two of them only after our hook, and binds a finished pod."""
    no_more(site, team, state)

    status, message = denied(site, team, "p", node="soft")

    let_go(site, team)
    assert (status, WHY[state] in message) == (409, True)
    assert 'admission webhook "bindings.vgpu-admission.io" denied the request' in message
    assert promised(site, "soft") == ()


@pytest.mark.parametrize("claims", [False, True], ids=["no-uid", "its-uid"])
@pytest.mark.parametrize("state", WHY)
def test_a_forged_review_leaves_no_entry(
    site: Installation, team: str, *, state: str, claims: bool
) -> None:
    """Who sends one past the API server is refused in the protocol's form, by every replica."""
    uid = no_more(site, team, state)
    to = binding(node="cut" if state == "bound" else "soft", **({"uid": uid} if claims else {}))
    tried = review(to, namespace=team, dryRun=True)
    forged = review(to, namespace=team, uid="forged-1")
    before = promised(site, "soft"), promised(site, "cut")
    # What claims the pod's uid may be judged by what a replica has heard of it so far.
    for ask in [replica.review for replica in site.replicas]:
        wait_for(lambda ask=ask: not answered(ask(PATH, tried)[1])["allowed"])  # type: ignore[misc]

    answers = [replica.review(PATH, forged) for replica in site.replicas]

    let_go(site, team)
    for status, body in answers:
        answer = orjson.loads(body)
        response = answer["response"]
        assert (status, answer["kind"]) == (200, "AdmissionReview")
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        assert (response["uid"], response["allowed"]) == ("forged-1", False)
        assert response["status"]["code"] == (404 if state == "gone" else 409)
        assert WHY[state] in response["status"]["message"]
        assert "patch" not in response
    assert (promised(site, "soft"), promised(site, "cut")) == before
