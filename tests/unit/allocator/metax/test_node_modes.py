"""MetaX's ConfigMap gives each node its mode, and a document in doubt changes none."""

import pytest

from allocator.metax.node_modes import NodeMode, NodeModes, load_node_modes
from allocator.model.problem import Loaded, Rejected

# As MetaX's guide shows it: values are texts, two of them YAML.
GUIDE = {
    "version": "v1",
    "cluster-config": 'mode: "native"\n',
    "nodes-config": '- nodeName: "sample-node1"\n  mode: "sgpu"\n',
}


def loaded(data: dict[str, str]) -> NodeModes:
    """Return the modes of a document that must load without warning."""
    result = load_node_modes(data)
    assert isinstance(result, Loaded)
    assert result.warnings == ()
    return result.value


def test_the_guide_shares_one_node() -> None:
    """The named node shares its GPUs; all others keep to the mode of the cluster."""
    modes = loaded(GUIDE)

    assert modes.mode_of("sample-node1") is NodeMode.SGPU
    assert modes.mode_of("another") is NodeMode.NATIVE
    assert modes.mode_of("sample-node") is NodeMode.NATIVE


def test_one_node_may_stay_native_in_a_shared_cluster() -> None:
    """The entry of a node wins over the cluster."""
    modes = loaded(
        {
            "version": "v1",
            "cluster-config": 'mode: "sgpu"',
            "nodes-config": '[{"nodeName": "gpu-a", "mode": "native"}]',
        }
    )

    assert [modes.mode_of(name) for name in ("gpu-a", "gpu-b")] == [NodeMode.NATIVE, NodeMode.SGPU]


@pytest.mark.parametrize("data", [{"version": "v1"}, {"version": "v1", "nodes-config": "\n"}])
def test_without_a_mode_nodes_are_native(data: dict[str, str]) -> None:
    """Neither a cluster's mode nor a node's need be there."""
    assert loaded(data) == NodeModes()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({}, "version"),
        ({"version": "v2"}, "version"),
        ({"version": "v1", "cluster-config": "mode: vgpu"}, "cluster-config.mode"),
        ({"version": "v1", "cluster-config": "mode: [sgpu]"}, "cluster-config.mode"),
        ({"version": "v1", "cluster-config": "mode: ''"}, "cluster-config.mode"),
        ({"version": "v1", "cluster-config": "- sgpu"}, "cluster-config"),
        ({"version": "v1", "cluster-config": "mode: sgpu\n\tx"}, "cluster-config"),
        ({"version": "v1", "nodes-config": "nodeName: a"}, "nodes-config"),
        ({"version": "v1", "nodes-config": "- a"}, "nodes-config[0]"),
        ({"version": "v1", "nodes-config": "- mode: sgpu"}, "nodes-config[0].nodeName"),
        ({"version": "v1", "nodes-config": "- nodeName: a"}, "nodes-config[0].mode"),
        (
            {
                "version": "v1",
                "nodes-config": "[{nodeName: a, mode: sgpu}, {nodeName: a, mode: x}]",
            },
            "nodes-config[1].nodeName",
        ),
        ({"version": "v1", "nodes-config": "- {nodeName: 7, mode: sgpu}"}, "nodes-config[0]"),
        ({"version": "v1", "nodes-config": "&a [*a]"}, "nodes-config"),
        ({"version": "v1", "cluster-config": "{" * 10_000}, "cluster-config"),
        ({"version": "v1", "nodes-config": f"[{'{nodeName: a, mode: sgpu},' * 10_001}]"}, "nodes"),
        ({"version": "v1", "nodes-config": "[" + "x," * 10_001 + "]"}, "nodes-config"),
        ({"version": "v1", "cluster-config": "mode: " + "s" * 600_000}, "cluster-config"),
    ],
)
def test_a_document_in_doubt_is_rejected_whole(data: dict[str, str], place: str) -> None:
    """Where half of it could be read, the last good one stays in force all the same."""
    result = load_node_modes(data)

    assert isinstance(result, Rejected)
    assert any(problem.path.startswith(place) for problem in result.problems), str(result)
    assert len(str(result)) < 8192


def test_unknown_keys_are_warnings() -> None:
    """A newer operator may write more than is read here."""
    result = load_node_modes({**GUIDE, "vfio-config": "x"})

    assert isinstance(result, Loaded)
    assert [warning.what for warning in result.warnings] == ['unknown key "vfio-config"']
