"""The overlay for vc-scheduler brings the setting, the right that it needs, and what limits it."""

from typing import Any

import yaml

from allocator.core.settings import NodeAgent, settings_of
from allocator.core.wire import HANDSHAKE, REGISTER
from manifests.generator.names import CONTROL_PLANE
from tests.unit.manifests.test_written import MANIFESTS

COMPONENT = MANIFESTS / "components" / "vc-scheduler"


def objects(name: str) -> dict[str, Any]:
    found = yaml.safe_load_all((COMPONENT / f"{name}.yaml").read_text())
    return {item["kind"]: item for item in found}


def test_our_nodes_are_registered() -> None:
    """By the control plane, for agents of ours."""
    settings = settings_of((COMPONENT / "settings.yaml").read_text())

    assert settings.volcano_register
    assert settings.node_agent is NodeAgent.OURS


def test_the_right_is_one_verb_on_one_kind() -> None:
    """And it goes to the account that runs the registrar."""
    found = objects("rbac")
    (subject,) = found["ClusterRoleBinding"]["subjects"]

    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}
    ]
    assert f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == CONTROL_PLANE


def test_the_policy_is_about_that_account_and_those_annotations() -> None:
    """It compares the exact user, and lets it change two keys."""
    spec = objects("policy")["ValidatingAdmissionPolicy"]["spec"]
    variables = {item["name"]: item["expression"] for item in spec["variables"]}

    assert f"'{CONTROL_PLANE}'" in spec["matchConditions"][0]["expression"]
    assert variables["ours"] == f"['{REGISTER}', '{HANDSHAKE}']"
