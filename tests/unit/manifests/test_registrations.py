"""What the API server sends us, and what happens to a pod when nobody answers."""

import base64
import json

import jsonpatch
import msgspec
import pytest
import yaml

from allocator.catalog.vocabularies import HAMI
from allocator.controllers.match_conditions import CHECKED, ConditionedWebhooks, unnamed_resources
from manifests.generator.documents import hami_component
from manifests.generator.names import NAMESPACE, Json
from manifests.generator.policies import policies
from manifests.generator.registrations import registrations
from webhook.caller.hook_paths import HOOK_PATHS

ENTRIES = [entry for configuration in registrations() for entry in configuration["webhooks"]]
REQUEST_CAP = 34  # seconds, all hooks of one request together (platform contract)

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])


@each_entry
def test_only_binds_and_pods_that_ask_for_vgpu_can_be_held_up(entry: Json) -> None:
    """Other pods and workloads fail open; a Binding does not say what its pod asks for."""
    names = [condition["name"] for condition in entry.get("matchConditions", ())]

    expected = {
        ("asks-for-vgpu",): "Fail",
        ("asks-for-no-vgpu",): "Ignore",
        ("makes-vgpu-pods", "changes-pods"): "Ignore",
        (): "Fail",
    }
    assert entry["failurePolicy"] == expected[tuple(names)]
    assert bool(names) != (entry["rules"][0]["resources"] == ["pods/binding", "bindings"])


@each_entry
def test_we_never_wait_for_ourselves(entry: Json) -> None:
    """Namespaces opt in, and the two that must start before us cannot."""
    opted, excluded = entry["namespaceSelector"]["matchExpressions"]

    assert opted == {
        "key": "vgpu-admission.io/inject",
        "operator": "In",
        "values": ["enabled"],
    }
    assert excluded == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": [NAMESPACE, "kube-system"],
    }


def test_all_hooks_of_one_create_fit_into_its_time() -> None:
    """Mutating twice and validating once leaves half of the request's time to others."""
    seconds = {entry["name"].partition(".vgpu-")[0]: entry["timeoutSeconds"] for entry in ENTRIES}

    assert 2 * seconds["pods"] + seconds["pods.validate"] < REQUEST_CAP / 2
    assert 2 * seconds["others"] < REQUEST_CAP / 2


def test_whoever_applies_a_workload_waits_briefly_and_leaves_no_trace() -> None:
    """A dry run may ask its hook, too, which then records nothing."""
    (entry,) = (entry for entry in ENTRIES if entry["name"].startswith("workloads."))

    assert entry["timeoutSeconds"] <= 2
    assert entry["sideEffects"] == "NoneOnDryRun"
    assert {
        (group, resource)
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    } == {
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("apps", "replicasets"),  # by which a pod leads on to its Deployment
        ("batch", "jobs"),
        ("batch", "cronjobs"),
        ("batch.volcano.sh", "jobs"),
    }


def test_a_change_by_a_later_injector_comes_back_to_us() -> None:
    """Mutating hooks of pods are asked again; validating ones know no such field."""
    mutating, validating = registrations()

    asked = {e["name"]: e["reinvocationPolicy"] for e in mutating["webhooks"]}
    assert asked.pop("bindings.vgpu-admission.io") == "Never"
    assert "workloads.vgpu-admission.io" not in asked
    assert set(asked.values()) == {"IfNeeded"}
    assert all("reinvocationPolicy" not in entry for entry in validating["webhooks"])


def test_committed_registrations_leave_the_bundle_to_its_owner() -> None:
    """An apply never takes back the certificates that verify us, nor the paths that are secret."""
    assert all("caBundle" not in entry["clientConfig"] for entry in ENTRIES)
    assert all("path" not in entry["clientConfig"]["service"] for entry in ENTRIES)


def test_a_webhook_outside_the_cluster() -> None:
    """An address and a bundle replace the Service, path by path."""
    outside = registrations(url="https://127.0.0.1:8443", ca_bundle=b"PEM")

    clients = [entry["clientConfig"] for config in outside for entry in config["webhooks"]]
    paths = [HOOK_PATHS[entry["name"]] for entry in ENTRIES]
    bundle = base64.b64encode(b"PEM").decode()
    assert clients == [
        {"url": f"https://127.0.0.1:8443{path}", "caBundle": bundle} for path in paths
    ]


def test_the_component_for_hami_names_its_resources_everywhere() -> None:
    """Applied to the base, each condition that names resources names HAMi's; the base does not."""
    names = list(HAMI.resources)
    objects = [*registrations(), *policies()]
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    texts = json.dumps(list(by_kind.values()))
    assert "nvidia.com/gpumem" not in texts

    patches = hami_component()["patches"]
    for patch in patches:
        target = patch["target"]["kind"], patch["target"]["name"]
        changed = jsonpatch.apply_patch(by_kind[target], yaml.safe_load(patch["patch"]))
        found = msgspec.convert(changed, ConditionedWebhooks)
        before = msgspec.convert(by_kind[target], ConditionedWebhooks)
        assert unnamed_resources(before, names, own=target[1])
        assert not unnamed_resources(found, names, own=target[1])
    assert sorted(patch["target"]["kind"] for patch in patches) == sorted(CHECKED.values())
