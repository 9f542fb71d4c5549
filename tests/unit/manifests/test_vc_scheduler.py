"""The overlay for vc-scheduler brings the setting; the base has the right, and what limits it."""

from typing import Any

import yaml

from allocator.catalog import hami_keys
from allocator.catalog.keys import HAMI_REGISTER_KEY, REGISTER_KEY
from allocator.config.settings import NodeAgent, settings_of
from allocator.controllers.requeue import FREED_KEY
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from manifests.generator.controlplane import control_plane
from manifests.generator.names import CONTROL_PLANE
from tests.unit.manifests.test_written import BASE, MANIFESTS

COMPONENT = MANIFESTS / "components" / "vc-scheduler"


def rights_on_nodes() -> list[dict[str, Any]]:
    """Return the rules of the control plane's own role that are about Nodes."""
    found = yaml.safe_load_all((BASE / "rbac.yaml").read_text())
    (role,) = (item for item in found if item["kind"] == "ClusterRole")
    return [rule for rule in role["rules"] if "nodes" in rule["resources"]]


def test_our_nodes_are_registered() -> None:
    """By the control plane, for agents of ours."""
    settings = settings_of((COMPONENT / "settings.yaml").read_text())

    assert settings.volcano_register
    assert settings.node_agent is NodeAgent.OURS


def test_the_right_to_write_is_one_verb_on_one_kind() -> None:
    """Nothing of a Node's status, and no Node is made or removed."""
    reading = {"get", "list", "watch"}

    writing = [rule for rule in rights_on_nodes() if not reading.issuperset(rule["verbs"])]

    assert writing == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]


def test_the_policy_is_about_that_account_and_what_it_writes() -> None:
    """It compares the exact user, and lets it change the keys that programs write."""
    policy, _ = control_plane()
    (condition,) = policy["spec"]["matchConditions"]
    variables = {item["name"]: item["expression"] for item in policy["spec"]["variables"]}

    assert condition["expression"] == f"request.userInfo.username == '{CONTROL_PLANE}'"
    volcanos = [FREED_KEY, HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION, REGISTER_KEY]
    hamis = [
        hami_keys.HANDSHAKE_ANNOTATION,
        hami_keys.LOCK_ANNOTATION,
        hami_keys.REGISTER_ANNOTATION,
        HAMI_REGISTER_KEY,
    ]
    keys = sorted(volcanos + hamis)
    assert variables["ours"] == "[" + ", ".join(f"'{key}'" for key in keys) + "]"
