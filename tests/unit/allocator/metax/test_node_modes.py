"""MetaX's ConfigMap gives each node its mode, and a document in doubt changes none."""

import json

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


def rejected(data: dict[str, str]) -> list[str]:
    """Return the problems of a document that is not taken."""
    result = load_node_modes(data)
    assert isinstance(result, Rejected)
    return list(map(str, result.problems))


def many(count: int) -> str:
    return json.dumps([{"nodeName": f"n{number}", "mode": "sgpu"} for number in range(count)])


def test_a_version_is_named_or_missed() -> None:
    """The text says what was found in its place."""
    [missing], [other] = rejected({}), rejected({"version": "v2"})

    assert "missing" in missing
    assert "v2" in other
    assert "v1" in other


def test_as_many_nodes_as_are_accepted() -> None:
    """One more is too many, and the text says how many there are."""
    accepted = loaded({"version": "v1", "nodes-config": many(10_000)})
    [problem] = rejected({"version": "v1", "nodes-config": many(10_001)})

    assert len(accepted.nodes) == 10_000
    assert "10001 elements" in problem


@pytest.mark.parametrize("text", ["{}", "7", "x", "true", "mode: sgpu"])
def test_nodes_are_a_list(text: str) -> None:
    """Anything else is named."""
    [problem] = rejected({"version": "v1", "nodes-config": text})

    assert "a list of at most 10000 nodes" in problem
    assert "elements" not in problem


def test_problems_and_warnings_are_bounded() -> None:
    """Whoever writes a thousand mistakes is told of the first ones."""
    wrong = json.dumps([{"nodeName": f"n{number}", "mode": "x"} for number in range(100)])
    assert len(rejected({"version": "v1", "nodes-config": wrong})) == 16

    odd = load_node_modes({"version": "v1", **{f"key-{number:02}": "" for number in range(100)}})
    assert isinstance(odd, Loaded)
    assert len(odd.warnings) == 16
    assert "key-00" in str(odd.warnings[0])
    assert "key-15" in str(odd.warnings[15])


@pytest.mark.parametrize(
    "data",
    [
        {"cluster-config": "mode: sgpu\ncolour: red"},
        {"nodes-config": "[{nodeName: n1, mode: sgpu, colour: red}]"},
    ],
)
def test_an_unknown_key_is_told_and_changes_nothing(data: dict[str, str]) -> None:
    """A later version of the document may have it."""
    result = load_node_modes({"version": "v1", **data})

    assert isinstance(result, Loaded)
    [warning] = result.warnings
    assert "colour" in str(warning)
    assert result.value.mode_of("n1") is NodeMode.SGPU


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_a_cluster_without_a_mode_is_native(text: str) -> None:
    """Without a warning."""
    assert loaded({"version": "v1", "cluster-config": text}).mode_of("n1") is NodeMode.NATIVE


@pytest.mark.parametrize("mode", ["", "x", "SGPU", "7", "null"])
def test_a_mode_that_is_none_is_told_once(mode: str) -> None:
    """Where it stands."""
    [problem] = rejected({"version": "v1", "nodes-config": f'[{{nodeName: n1, mode: "{mode}"}}]'})

    assert "mode" in problem
