"""What the API server refuses by itself, as far as it can be said without one."""

import pytest

from allocator.catalog.keys import ADMISSION_KEYS, ALLOCATION_KEYS, SERVED_BY_KEY, USER_KEYS
from allocator.catalog.vocabularies import OWN, VOCABULARIES
from manifests.generator.names import Json
from manifests.generator.policies import policies

POLICIES = policies()[::2]
BINDINGS = policies()[1::2]


def named(name: str) -> Json:
    return next(p for p in POLICIES if p["metadata"]["name"] == f"{name}.vgpu-admission.io")


def variables(name: str) -> dict[str, str]:
    return {v["name"]: v["expression"] for v in named(name)["spec"]["variables"]}


@pytest.mark.parametrize(
    ("policy", "binding"),
    list(zip(POLICIES, BINDINGS, strict=True)),
    ids=[p["metadata"]["name"] for p in POLICIES],
)
def test_every_policy_is_bound(policy: Json, binding: Json) -> None:
    """A policy without a binding does nothing."""
    assert policy["kind"] == "ValidatingAdmissionPolicy"
    assert binding["kind"] == "ValidatingAdmissionPolicyBinding"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_installing_breaks_no_running_site() -> None:
    """Only what concerns namespaces that opted in, and our own objects, is denied at first."""
    actions = {b["metadata"]["name"].split(".")[0]: b["spec"] for b in BINDINGS}

    assert actions["unlabelled"]["validationActions"] == ["Warn", "Audit"]
    assert actions["hidden"]["validationActions"] == ["Deny"]
    assert actions["frozen"]["validationActions"] == ["Deny"]
    assert actions["gpunodes"]["validationActions"] == ["Deny"]


def test_all_that_admission_reads_or_writes_is_frozen() -> None:
    """Keys of ours by their prefix, all others by name."""
    frozen = variables("frozen")
    read = {
        key
        for v in VOCABULARIES
        for key in (v.mode_key, v.isolate_key, v.use_models, v.not_models, v.use_uuids, v.not_uuids)
        if key is not None
    }

    keys = {*ADMISSION_KEYS, *USER_KEYS, SERVED_BY_KEY, *read}
    assert f"k.startsWith('{OWN}')" in frozen["touched"]
    assert [k for k in keys if not k.startswith(OWN) and f"'{k}'" not in frozen["touched"]] == []
    assert all(f"'{key}'" in frozen["allocation"] for key in ALLOCATION_KEYS)


@pytest.mark.parametrize("name", ["unlabelled", "frozen"])
def test_only_a_change_of_annotations_is_judged(name: str) -> None:
    """A finalizer comes off whatever the rest costs: 45,000 keys exhaust an expression's budget."""
    (condition,) = named(name)["spec"]["matchConditions"]

    before, after = (variables(name)[key] for key in ("before", "after"))
    assert condition["expression"] == f"request.operation == 'CREATE' || ({after}) != ({before})"


@pytest.mark.parametrize("name", ["unlabelled", "frozen"])
def test_accounts_stand_where_a_patch_expects_them(name: str) -> None:
    """docs/policies.md replaces them by their place."""
    first, second, *_ = named(name)["spec"]["variables"]

    assert (first["name"], second["name"]) == ("schedulers", "plugins")
