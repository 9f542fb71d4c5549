"""Nodes of Volcano's device plugin: a GPUNode for each, filled from its register annotation."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.catalog.keys import REGISTER_KEY
from allocator.ledger.decode import decode
from allocator.model.gpu import Node
from allocator.volcano.register import REGISTER_ANNOTATION, decode_register, encode_register
from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import T4, nodes_of
from tests.cluster.api import MERGE, wait_for
from tests.cluster.installation import GPU_NODES, Installation, installation
from tests.cluster.site import Who

SETTINGS = "nodeAgent: upstream\n"
OURS = "volcanoRegister: true\n"
WITHIN = 60.0  # seconds for what is to be written within a few
NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with installation(programs, tmp_path_factory.mktemp("upstream")) as found:
        configure(found, SETTINGS)
        yield found


def configure(site: Installation, settings: str) -> None:
    site.configure(settings)
    wait_for(lambda: site.first.obeys(settings))


def announce(site: Installation, node: Node) -> None:
    """Do what the plugin does every 30 seconds."""
    register = {REGISTER_ANNOTATION: encode_register(node.gpus)}
    site.api.patch(f"{NODES}/{node.name}", {"metadata": {"annotations": register}})


def test_a_register_makes_a_gpu_node(site: Installation) -> None:
    """It has no finalizer and no owner, and the status says what the register does."""
    node = nodes_of(2, T4, name="fresh")
    site.add_upstream_node(node.name, encode_register(node.gpus))

    wait_for(lambda: site.gpu_node_status("fresh").get("inventory"))
    found = site.api.get(f"{GPU_NODES}/fresh")
    assert "finalizers" not in found["metadata"]
    assert "ownerReferences" not in found["metadata"]
    assert found["status"]["nodeUID"] == site.api.get(f"{NODES}/fresh")["metadata"]["uid"]
    assert decode(found).node == node


def test_only_material_change_is_written(site: Installation) -> None:
    """A register that says the same again costs nothing; a GPU that falls ill is told at once."""
    node = nodes_of(2, T4, name="steady")
    site.add_upstream_node(node.name, encode_register(node.gpus))
    first = wait_for(lambda: site.gpu_node_status("steady").get("inventory"))
    version = site.api.get(f"{GPU_NODES}/steady")["metadata"]["resourceVersion"]

    site.api.patch(f"{NODES}/steady", {"metadata": {"annotations": {"other": "noise"}}})
    announce(site, replace(node, gpus=(replace(node.gpus[0], healthy=False), node.gpus[1])))

    assert wait_for(lambda: site.gpu_node_status("steady")["inventory"] != first)
    found = site.api.get(f"{GPU_NODES}/steady")
    assert [gpu["healthy"] for gpu in found["status"]["gpus"]] == [False, True]
    assert int(found["metadata"]["resourceVersion"]) > int(version)


def test_a_node_that_goes_empty_takes_its_gpu_node_along(site: Installation) -> None:
    """Nothing is promised there, so nothing has to be kept; a Node of that name starts anew."""
    node = nodes_of(1, T4, name="short")
    site.add_upstream_node(node.name, encode_register(node.gpus))
    wait_for(lambda: site.gpu_node_status("short").get("inventory"))
    uid = site.api.get(f"{GPU_NODES}/short")["metadata"]["uid"]

    site.api.delete(f"{NODES}/short")
    assert wait_for(lambda: not exists(site, "short"))
    site.add_upstream_node(node.name, encode_register(node.gpus))
    assert wait_for(lambda: site.gpu_node_status("short").get("inventory"))
    assert site.api.get(f"{GPU_NODES}/short")["metadata"]["uid"] != uid


def exists(site: Installation, name: str) -> bool:
    names = [item["metadata"]["name"] for item in site.api.get(GPU_NODES)["items"]]
    return name in names


def annotations(site: Installation, name: str) -> dict[str, str]:
    """Return the register of a node, and what is kept beside it."""
    found: dict[str, str] = site.api.get(f"{NODES}/{name}")["metadata"].get("annotations", {})
    return {key: text for key, text in found.items() if key in {REGISTER_ANNOTATION, REGISTER_KEY}}


def test_a_register_that_was_lowered_is_given_back(site: Installation) -> None:
    """Our control plane shuts a node that no agent of ours serves; the plugin gets its own words.

    It writes only what it has not written before, so it would not put this right itself.
    """
    node = nodes_of(2, T4, name="switched")
    full = encode_register(node.gpus)
    site.add_upstream_node(node.name, full)
    wait_for(lambda: site.gpu_node_status("switched").get("inventory"))
    shown = wait_for(lambda: site.gpu_node_status("switched")["gpus"])

    bare = {"status": {"gpus": None, "inventory": None}}
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    configure(site, OURS)
    site.api.request("PATCH", f"{GPU_NODES}/switched/status", bare, headers=headers)
    wait_for(lambda: annotations(site, "switched")[REGISTER_ANNOTATION] != full, within=WITHIN)
    assert {
        r.count for r in decode_register(annotations(site, "switched")[REGISTER_ANNOTATION]).records
    } == {0}

    configure(site, SETTINGS)
    wait_for(lambda: annotations(site, "switched") == {REGISTER_ANNOTATION: full}, within=WITHIN)
    assert wait_for(lambda: site.gpu_node_status("switched").get("gpus"), within=WITHIN) == shown


def test_what_a_register_told_serves_nobody_once_our_agent_is_to_serve(site: Installation) -> None:
    """Until the agent has accounted for what runs there; a switch back opens the node again."""
    node = nodes_of(1, T4, name="changed")
    site.add_upstream_node(node.name, encode_register(node.gpus))
    told = wait_for(lambda: site.gpu_node_status("changed").get("inventory"))

    configure(site, OURS)
    wait_for(lambda: "inventory" not in site.gpu_node_status("changed"), within=WITHIN)
    assert site.gpu_node_status("changed")["gpus"]

    configure(site, SETTINGS)
    assert wait_for(lambda: site.gpu_node_status("changed").get("inventory"), within=WITHIN) == told
