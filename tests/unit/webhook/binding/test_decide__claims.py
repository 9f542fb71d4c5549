"""A pod whose GPU a scheduler took from a DeviceClass is not bound past the ledger."""

import orjson
import pytest

from allocator.config.settings import DEFAULTS
from tests.builders.bindings import binding, bound, live, stored
from tests.builders.model import T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from webhook.admission.context import AdmissionContext
from webhook.binding.decide import BindRequest, cache_suffices, judge
from webhook.review.admission_review import Refusal
from webhook.review.binding_schema import LivePod, UnreadablePodError, live_pod

CONTEXT = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(nodes_of(1, T4)))
ASKING = pod(container(limits={NUMBER: 1, MEMORY: 3000}))


def claimed(*resources: object, **status: object) -> LivePod:
    """Return the pod with a claim for *resources*, as kube-scheduler 1.36 writes it."""
    found = stored(admitted(received(ASKING), CONTEXT))
    mappings = [{"containerName": "main", "resourceName": name} for name in resources]
    claim = {"resourceClaimName": "p-extended-resources-x", "requestMappings": mappings}
    found["status"] = {"extendedResourceClaimStatus": claim, **status}
    return live_pod(orjson.dumps(found))


def judged(found: LivePod) -> object:
    return judge(bound(binding()), found, CONTEXT)


def test_a_claimed_resource_of_ours_is_refused_with_what_helps() -> None:
    """In a way that schedulers retry: they give the claim back, and try other nodes."""
    answer = judged(claimed(MEMORY))

    assert isinstance(answer, Refusal)
    assert answer.code == 409
    assert MEMORY in answer.message
    assert "extendedResourceName" in answer.message


@pytest.mark.parametrize("resources", [(), ("example.com/fpga",), ("", "x" * 300)])
def test_claims_of_other_resources_are_no_concern(resources: tuple[str, ...]) -> None:
    """A network card from a DeviceClass stops no GPU of ours."""
    assert isinstance(judged(claimed(*resources)), BindRequest)


def test_a_pod_without_a_claim_passes() -> None:
    """Also where the API server writes the field as null."""
    assert isinstance(judged(claimed(extendedResourceClaimStatus=None)), BindRequest)
    null = claimed(extendedResourceClaimStatus={"requestMappings": None})
    assert isinstance(judged(null), BindRequest)


@pytest.mark.parametrize(
    "claim",
    [
        [],
        "x",
        1,
        {"requestMappings": {}},
        {"requestMappings": "x"},
        {"requestMappings": [1]},
        {"requestMappings": [None]},
        {"requestMappings": [{"resourceName": 1}]},
        {"requestMappings": [{"resourceName": None}]},
        {"requestMappings": [[]]},
    ],
)
def test_a_malformed_claim_makes_the_pod_unreadable(claim: object) -> None:
    """It is refused, not bound unseen."""
    with pytest.raises(UnreadablePodError):
        claimed(extendedResourceClaimStatus=claim)


def test_a_pod_of_nvidias_names_is_read_again() -> None:
    """Its claim is written right before the bind, so a cache may not show it yet."""
    review = bound(binding(uid="6a7d-1"))
    plain = live(admitted(received(ASKING), CONTEXT))
    named = live(pod(container(limits={"nvidia.com/gpu": 1})))

    assert cache_suffices(review, plain, CONTEXT)
    assert not cache_suffices(review, named, CONTEXT)


@pytest.mark.parametrize("first", [{"cpu": "1"}, {}, {"nvidia.com/gpu": 1, "cpu": "1"}])
@pytest.mark.parametrize("of_init", [True, False])
def test_any_container_may_have_a_claim(first: dict[str, object], *, of_init: bool) -> None:
    """So the pod is read again, whatever else it asks for."""
    asking = container("second", limits={"cpu": "1", "nvidia.com/gpu": 1, "memory": "1Gi"})
    written = pod(container(limits=first), *([] if of_init else [asking]))
    if of_init:
        written["spec"]["initContainers"] = [asking]
    found = live(received(written))
    same = bound(binding(uid=found.uid))

    assert not cache_suffices(same, found, CONTEXT)
    plain = live(received(pod(container(limits={"cpu": "1"}))))
    assert cache_suffices(same, plain, CONTEXT)
