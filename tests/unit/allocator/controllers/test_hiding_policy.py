"""The policy that hides GPUs in the API server writes what our hook would, where it is served."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import orjson
import pytest

from allocator.catalog.conditions import MOST_VARIABLES
from allocator.catalog.vocabularies import (
    GPUSHARE,
    OTHER_PLUGINS,
    VOCABULARIES,
    VOLCANO,
    configure_vocabulary,
)
from allocator.config.settings import Settings
from allocator.controllers.hiding_policy import (
    BINDING,
    NAME,
    POLICY,
    HidingPolicyController,
    hiding_spec,
)
from allocator.model.gpu import Snapshot
from kube.client import CallOptions
from kube.errors import NotFoundError
from tests.authorization.mutations import mutated
from tests.builders.pods import GPU_MEM, MEMORY, NUMBER, admitted, container, pod, received
from tests.fakes.api_client import FakeApiClient
from webhook.admission.context import AdmissionContext

Json = dict[str, Any]
CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
# A name that begins as one of gpushare's is ours to decide, be it served or not.
CLIENTS = [prefix for prefix in OTHER_PLUGINS if prefix not in GPUSHARE.prefixes]
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
RENAMED = configure_vocabulary(VOLCANO, names={MEMORY: "example.com/mem"})


def limited(name: str, amount: str = "1") -> Json:
    return container(limits={name: amount})


PODS = {
    "no-environment": pod(container()),
    "other-variables": pod(container(env=[{"name": "A", "value": "b"}])),
    "a-variable-twice": pod(container(env=[{"name": "A", "value": "b"}, {"name": "A"}])),
    "a-variable-from-a-field": pod(
        container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])
    ),
    "environment-from-elsewhere": pod(container(envFrom=[{"configMapRef": {"name": "all"}}])),
    "hidden-already": pod(container(env=[VOID])),
    "hidden-by-none": pod(container(env=[{"name": VOID["name"], "value": "none"}])),
    "hidden-by-an-empty-value": pod(container(env=[{"name": VOID["name"]}])),
    "a-similar-name": pod(container(env=[{"name": "NVIDIA_VISIBLE_DEVICES_", "value": "all"}])),
    "several": pod(container("a"), container("b", env=[VOID]), container("c")),
    "init": pod(container(), init=[container("i"), container("j", env=[{"name": "A"}])]),
    "cpu": pod(limited("cpu")),
    "zero-of-another-plugin": pod(limited("nvidia.com/gpu", "0")),
    "zero-and-one": pod(container(limits={"nvidia.com/a": "0", "nvidia.com/gpu": "1"})),
    "a-longer-domain": pod(limited("xnvidia.com/gpu")),
    "a-name-without-the-slash": pod(limited("nvidia.com.example/gpu")),
    "a-network-card": pod(limited("nvidia.com/hostdev")),
    "named-node": pod(limited("nvidia.com/gpu"), nodeName="gpu-1"),
    "only-requested": pod(container(resources={"requests": {"nvidia.com/gpu": "1"}})),
    "beside-another-plugin": pod(container("a"), limited("nvidia.com/gpu")),
    **{f"client-of-{prefix}": pod(limited(f"{prefix}x")) for prefix in CLIENTS},
}


@pytest.mark.parametrize("written", PODS.values(), ids=PODS)
def test_it_does_what_the_hook_does(written: Json) -> None:
    """And the hook finds nothing to add afterwards, so no variable is there twice."""
    found = received(written)
    by_policy = mutated(found)

    assert by_policy == admitted(found, CONTEXT)
    assert admitted(by_policy, CONTEXT) == by_policy
    assert mutated(by_policy) == by_policy


@pytest.mark.parametrize("name", [NUMBER, MEMORY, GPU_MEM])
def test_a_pod_that_asks_is_left_to_the_hook_that_must_answer(name: str) -> None:
    """Nothing is written into it, not even into those of its containers that ask for nothing."""
    found = received(pod(limited(name), container("other")))

    assert mutated(found) == found


def test_a_renamed_resource_asks_too() -> None:
    """The cluster's own name is known, beside those of the catalogue."""
    found = received(pod(limited("example.com/mem")))

    assert mutated(found) != found
    assert mutated(found, hiding_spec([RENAMED])) == found
    usual = received(pod(limited(MEMORY)))
    assert mutated(usual, hiding_spec([RENAMED])) == usual


def test_only_a_new_debug_container_is_changed() -> None:
    """An old one cannot be; it may be from before the policy."""
    old = received(pod(container())) | {}
    old["spec"]["ephemeralContainers"] = [container("old")]
    new = {
        **old,
        "spec": {**old["spec"], "ephemeralContainers": [container("old"), container("d")]},
    }

    found = mutated(new, old=old)

    assert found["spec"]["ephemeralContainers"] == [container("old"), container("d", env=[VOID])]
    assert found["spec"]["containers"] == old["spec"]["containers"]


def test_a_longer_list_than_is_searched_is_left_alone() -> None:
    """Another policy refuses it; to append blindly might write the variable twice."""
    many = received(pod(container(env=[{"name": f"A{n}"} for n in range(MOST_VARIABLES + 1)])))

    assert mutated(many) == many


def test_what_cannot_be_evaluated_is_refused() -> None:
    """And an injector that comes later does not escape."""
    assert hiding_spec()["failurePolicy"] == "Fail"
    assert hiding_spec()["reinvocationPolicy"] == "IfNeeded"


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """An API server that has our webhook configuration, or serves no such policies."""

    owner: Mapping[str, object] | None = field(default_factory=lambda: {"uid": "u1"})
    serves: bool = True
    applied: list[tuple[str, Json]] = field(default_factory=list)

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        if self.owner is None:
            raise NotFoundError(404, "NotFound", path)
        assert path.endswith("/mutatingwebhookconfigurations/vgpu-admission")
        return orjson.dumps({"metadata": self.owner})

    async def apply(
        self, path: str, body: bytes, *, field_manager: str, **_: Unpack[CallOptions]
    ) -> bytes:
        assert field_manager == "vgpu-admission-hiding"
        if not self.serves:
            raise NotFoundError(404, "NotFound", path)
        self.applied.append((path, orjson.loads(body)))
        return body

    def swept(self) -> list[tuple[str, Json]]:
        controller = HidingPolicyController(self, vocabularies=lambda: VOCABULARIES)
        asyncio.run(controller.sweep())
        return self.applied


def test_the_policy_and_its_binding_are_published() -> None:
    """They belong to our webhook configuration, so that they go with it."""
    (policy_path, policy), (binding_path, binding) = Cluster().swept()

    group = "/apis/admissionregistration.k8s.io/v1"
    assert policy_path == f"{group}/mutatingadmissionpolicies/{NAME}"
    assert binding_path == f"{group}/mutatingadmissionpolicybindings/{NAME}"
    assert (policy["kind"], binding["kind"]) == (POLICY, BINDING)
    assert policy["spec"] == hiding_spec()
    assert binding["spec"] == {"policyName": NAME}
    for found in (policy, binding):
        assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == ["u1"]
        assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "vgpu-admission"


@pytest.mark.parametrize(
    "owner",
    [None, {"uid": "u1", "deletionTimestamp": "2026-11-24T00:00:00Z"}],
    ids=["none", "going"],
)
def test_nothing_is_published_while_the_product_is_uninstalled(owner: Json | None) -> None:
    """A leader that still runs must not bring back what nobody would remove."""
    assert Cluster(owner=owner).swept() == []


def test_an_older_api_server_is_no_error() -> None:
    """The hook alone hides GPUs there."""
    assert Cluster(serves=False).swept() == []
