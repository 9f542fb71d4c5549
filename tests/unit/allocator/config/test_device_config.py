"""Both ConfigMaps of the Volcano plugin load as they are in the wild, and only those."""

import json
from pathlib import Path

import pytest

from allocator.catalog.boards import board_named
from allocator.config.device_config import (
    DeviceConfig,
    NodeConfig,
    load_device_config,
    load_node_config,
)
from allocator.mig.positions import position_table
from allocator.model.problem import Loaded, Problem, Rejected
from allocator.model.request import Mode

SHIPPED = Path(__file__).parents[3] / "golden" / "volcano"

ONE = """
knownMigGeometries:
- models: [A30]
  allowedGeometries:
  - group: quarters
    geometries:
    - {name: 1g.6gb, memory: 6144, count: 4}
"""


def device_config(text: str) -> DeviceConfig:
    loaded = load_device_config(text)
    assert isinstance(loaded, Loaded), str(loaded)
    return loaded.value


def rejected(loaded: object) -> tuple[Problem, ...]:
    assert isinstance(loaded, Rejected)
    return loaded.problems


def node_config(text: str) -> NodeConfig:
    loaded = load_node_config(text)
    assert isinstance(loaded, Loaded), str(loaded)
    return loaded.value["n"]


def shipped(name: str) -> str:
    return (SHIPPED / name).read_text()


@pytest.mark.parametrize("name", ["device-config-a.yaml", "device-config-b.yaml"])
def test_shipped_tables_load(name: str) -> None:
    """Both generations are read; a model listed twice in one entry is only remarked on."""
    loaded = load_device_config(shipped(name))

    assert isinstance(loaded, Loaded)
    assert len(loaded.value.geometries.entries) == 3
    assert loaded.value == DeviceConfig(geometries=loaded.value.geometries)
    assert [warning.what for warning in loaded.warnings] == ['"A100-SXM4-40GB" twice']


@pytest.mark.parametrize("name", ["device-config-a.yaml", "device-config-b.yaml"])
def test_shipped_tables_restrict_only_deviceshare(name: str) -> None:
    """Nobody asked for what a manifest happened to contain; vc-scheduler still counts by it."""
    table = device_config(shipped(name)).geometries

    for product in ("A30", "A100-SXM4-40GB", "A100-SXM4-80GB", "A100 80GB PCIe"):
        board = board_named(product)
        assert board is not None
        assert table.restriction(product, board) is None
        assert position_table(table, product, board) is not None


def test_formatting_is_no_edit_and_an_edit_is() -> None:
    """The content of an entry is recognised, not its text."""
    board = board_named("A30")
    assert board is not None
    text = shipped("device-config-a.yaml")
    reformatted = text.replace('[ "A30" ]', "\n    - A30  # quarters and halves")
    edited = text.replace("count: 4", "count: 3")

    assert device_config(reformatted).geometries.restriction("A30", board) is None
    assert device_config(edited).geometries.restriction("A30", board) is not None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ONE, id="top-level"),
        pytest.param("nvidia:" + ONE.replace("\n", "\n  "), id="wrapped"),
        pytest.param("nvidia: {gpuMemoryFactor: 1}\n" + ONE, id="beside-the-wrapper"),
        pytest.param("vnpus: []\n" + ONE, id="beside-another-vendor"),
    ],
)
def test_geometries_are_found_wherever_they_were_published(text: str) -> None:
    """The wrapper came and went; the table is the same."""
    assert [e.models for e in device_config(text).geometries.entries] == [("A30",)]


def test_absent_keys_have_the_built_in_values() -> None:
    """A partial ConfigMap never leaves a resource without a name, nor a factor of 0."""
    partial = device_config("nvidia: {gpuMemoryFactor: 0, resourceCoreName: ''}")

    assert partial == DeviceConfig()
    assert partial.memory_factor == 1
    assert partial.cores_name == "volcano.sh/vgpu-cores"


def test_unknown_keys_are_tolerated_and_reported() -> None:
    """The format is another project's: what it adds must not stop us."""
    loaded = load_device_config("nvidia: {newKey: 1}")

    assert isinstance(loaded, Loaded)
    assert [warning.path for warning in loaded.warnings] == ["nvidia.newKey"]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        pytest.param("count: 4", "count: 0", "geometries[0].count", id="count-zero"),
        pytest.param("memory: 6144", "memory: 6Gi", "geometries[0].memory", id="memory-quantity"),
        pytest.param("1g.6gb", "one", "geometries[0].name", id="no-profile"),
        pytest.param("1g.6gb", "1g.5gb+gfx", "geometries[0].name", id="unknown-profile"),
        pytest.param("quarters", "a-b", "group", id="group-name-with-dash"),
        pytest.param("quarters", "'a[0]'", "group", id="group-name-with-brackets"),
        pytest.param("[A30]", "[]", "models", id="no-models"),
        pytest.param("[A30]", "[A100]", "models[0]", id="ambiguous-model"),
        pytest.param("[A30]", "[7]", "models[0]", id="model-not-text"),
    ],
)
def test_a_bad_geometry_is_refused_at_its_place(before: str, after: str, path: str) -> None:
    """The path leads to the value that has to change."""
    problems = rejected(load_device_config(ONE.replace(before, after)))

    assert [problem.path.endswith(path) for problem in problems] == [True]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("nvidia: {deviceSplitCount: 0}", "nvidia.deviceSplitCount", id="no-slots"),
        pytest.param("deviceCoreScaling: .nan", "deviceCoreScaling", id="not-a-number"),
        pytest.param("resourceCountName: gpu", "resourceCountName", id="no-domain"),
        pytest.param("resourceCoreName: volcano.sh/vgpu-memory", "document", id="same-name-twice"),
        pytest.param("nvidia: 3", "nvidia", id="no-mapping"),
        pytest.param("- a", "document", id="list"),
        pytest.param("", "document", id="empty"),
        pytest.param("a: &b [*b]", "document", id="alias-of-itself"),
    ],
)
def test_a_bad_setting_is_refused_at_its_place(text: str, path: str) -> None:
    """Each defect is found by itself, with its path."""
    problems = rejected(load_device_config(text))

    assert [problem.path for problem in problems] == [path]


def test_groups_of_one_name_are_refused() -> None:
    """``[group-position]`` would mean either."""
    text = ONE + ONE.partition("allowedGeometries:\n")[2]

    problems = rejected(load_device_config(text))

    assert [problem.what for problem in problems] == ['group "quarters" twice']


def test_the_shipped_node_config_loads() -> None:
    """Keys without effect upstream are no defect."""
    loaded = load_node_config(shipped("node-config.json"))

    assert isinstance(loaded, Loaded)
    assert loaded.warnings == ()
    assert loaded.value["gpu-a01"] == NodeConfig(
        name="gpu-a01", mode=Mode.HAMI_CORE, split_count=10, memory_scaling=1.8
    )


def test_node_keys_are_compared_without_case() -> None:
    """Go's decoder does, so sites have written both."""
    text = (
        '{"NodeConfig": [{"Name": "n", "OperatingMode": "mig", "FilterDevices": {"Index": [1]}}]}'
    )

    config = node_config(text)

    assert config.mode is Mode.MIG
    assert config.excludes("GPU-a", 1)
    assert not config.excludes("GPU-a", 0)


def test_later_entries_of_a_node_win() -> None:
    """Each entry changes what it names and leaves the rest."""
    text = """{"nodeconfig": [
      {"name": "n", "operatingmode": "mig", "devicesplitcount": 7},
      {"name": "n", "devicesplitcount": 5, "filterdevices": {"uuid": ["GPU-a"]}}]}"""

    config = node_config(text)

    assert (config.mode, config.split_count) == (Mode.MIG, 5)
    assert config.excludes("GPU-a", 0)


def test_single_gpus_may_be_in_mode_mps() -> None:
    """By UUID or index, in whatever case the key is written; the others keep the node's mode."""
    text = """{"nodeconfig": [{"name": "n", "operatingmode": "mig",
      "mpsDevices": {"UUID": ["GPU-a"], "index": [2]}}, {"name": "n", "devicesplitcount": 5}]}"""

    config = node_config(text)

    modes = [config.mode_of(*gpu) for gpu in (("GPU-a", 0), ("GPU-b", 2), ("GPU-b", 0))]
    assert modes == [Mode.MPS, Mode.MPS, Mode.MIG]
    assert "mpsdevices" in config.mode_text("GPU-a", 0)
    assert config.mode_text("GPU-b", 0) == "operatingmode is mig"


@pytest.mark.parametrize(
    ("entries", "static"),
    [
        pytest.param(["true"], [True, True, True], id="all"),
        pytest.param(["false"], [False] * 3, id="none"),
        pytest.param(['{"uuid": ["GPU-a"]}'], [True, False, False], id="by-uuid"),
        pytest.param(['{"INDEX": [2]}'], [False, True, False], id="by-index"),
        pytest.param(['{"index": [2], "uuid": ["GPU-a"]}'], [True, True, False], id="by-both"),
        pytest.param(["true", "null"], [True, True, True], id="earlier-entry"),
        pytest.param(["true", '{"index": [2]}'], [False, True, False], id="later-entry"),
        pytest.param(['{"index": [2]}', "false"], [False] * 3, id="taken-back"),
    ],
)
def test_single_gpus_may_be_partitioned_statically(entries: list[str], static: list[bool]) -> None:
    """All of a node in mode mps, or those that are named; the last entry counts."""
    nodes = ", ".join(f'{{"name": "n", "mpsstatic": {each}}}' for each in entries)

    config = node_config(f'{{"nodeconfig": [{nodes}]}}')

    gpus = (("GPU-a", 0), ("GPU-b", 2), ("GPU-b", 0))
    assert [config.is_static(*gpu) for gpu in gpus] == static
    assert config.mode is Mode.HAMI_CORE


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        pytest.param('{"operatingmode": "mig"}', "nodeconfig[0].name", id="no-name"),
        pytest.param('{"name": "n", "operatingmode": "smi"}', "operatingmode", id="mode"),
        pytest.param('{"name": "n", "devicesplitcount": -1}', "devicesplitcount", id="split"),
        pytest.param('{"name": "n", "devicecorescaling": "2"}', "devicecorescaling", id="scaling"),
        pytest.param('{"name": "n", "filterdevices": []}', "filterdevices", id="filter-list"),
        pytest.param('{"name": "n", "filterdevices": {"index": [-1]}}', "index[0]", id="index"),
        pytest.param('{"name": "n", "mpsdevices": []}', "mpsdevices", id="mps-list"),
        pytest.param('{"name": "n", "mpsdevices": "all"}', "mpsdevices", id="mps-text"),
        pytest.param('{"name": "n", "mpsdevices": true}', "mpsdevices", id="mps-yes"),
        pytest.param('{"name": "n", "mpsdevices": 3}', "mpsdevices", id="mps-number"),
        pytest.param('{"name": "n", "mpsdevices": {"index": 0}}', "mpsdevices.index", id="mps-0"),
        pytest.param('{"name": "n", "mpsdevices": {"index": ["0"]}}', "index[0]", id="mps-text-0"),
        pytest.param('{"name": "n", "mpsdevices": {"index": [-1]}}', "index[0]", id="mps-below"),
        pytest.param('{"name": "n", "mpsdevices": {"index": [1024]}}', "index[0]", id="mps-above"),
        pytest.param('{"name": "n", "mpsdevices": {"index": [0.5]}}', "index[0]", id="mps-half"),
        pytest.param('{"name": "n", "mpsdevices": {"index": [true]}}', "index[0]", id="mps-true"),
        pytest.param('{"name": "n", "mpsdevices": {"uuid": [1]}}', "uuid[0]", id="mps-uuid-1"),
        pytest.param('{"name": "n", "mpsdevices": {"uuid": [""]}}', "uuid[0]", id="mps-uuid-empty"),
        pytest.param('{"name": "n", "mpsdevices": {"uuid": {}}}', "mpsdevices.uuid", id="mps-map"),
        pytest.param('{"name": "n", "mpsstatic": []}', "mpsstatic", id="static-list"),
        pytest.param('{"name": "n", "mpsstatic": "true"}', "mpsstatic", id="static-text"),
        pytest.param('{"name": "n", "mpsstatic": "\\u202e"}', "mpsstatic", id="static-odd-text"),
        pytest.param('{"name": "n", "mpsstatic": 1}', "mpsstatic", id="static-1"),
        pytest.param('{"name": "n", "mpsstatic": 1e400}', "mpsstatic", id="static-infinite"),
        pytest.param('{"name": "n", "mpsstatic": {"index": 0}}', "mpsstatic.index", id="static-0"),
        pytest.param('{"name": "n", "mpsstatic": {"index": ["0"]}}', "index[0]", id="static-t0"),
        pytest.param('{"name": "n", "mpsstatic": {"index": [-1]}}', "index[0]", id="static-below"),
        pytest.param('{"name": "n", "mpsstatic": {"index": [1024]}}', "index[0]", id="static-over"),
        pytest.param('{"name": "n", "mpsstatic": {"uuid": [""]}}', "uuid[0]", id="static-empty"),
        pytest.param('{"name": "n", "mpsstatic": {"uuid": {}}}', "mpsstatic.uuid", id="static-map"),
    ],
)
def test_a_bad_node_entry_is_refused_at_its_place(entry: str, path: str) -> None:
    """A mode or number that nobody implements is not guessed at."""
    problems = rejected(load_node_config(f'{{"nodeconfig": [{entry}]}}'))

    assert [problem.path.endswith(path) for problem in problems] == [True]


def table_of(*, models: int = 1, groups: int = 1, items: int = 1, entries: int = 1) -> str:
    """Write geometries of so many parts."""
    one = {"name": "1g.5gb", "memory": 4864, "count": 1}
    known = [
        {
            "models": [f"M{entry}x{n}" for n in range(models)],
            "allowedGeometries": [
                {"group": f"g{n}", "geometries": [one] * items} for n in range(groups)
            ],
        }
        for entry in range(entries)
    ]
    return json.dumps({"nvidia": {"knownMigGeometries": known}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            table_of(models=257),
            "nvidia.knownMigGeometries: 257 models; accepted: at most 256 in all entries",
            id="models",
        ),
        pytest.param(
            table_of(entries=257),
            "nvidia.knownMigGeometries: 257 models; accepted: at most 256 in all entries",
            id="entries",
        ),
        pytest.param(
            table_of(groups=129),
            "nvidia.knownMigGeometries[0].allowedGeometries: 129 groups; accepted: at most 128",
            id="groups",
        ),
        pytest.param(
            table_of(items=17),
            "nvidia.knownMigGeometries[0].allowedGeometries: a group of 17 geometries; "
            "accepted: at most 16 in a group",
            id="items",
        ),
    ],
)
def test_a_table_that_each_decision_would_go_through_is_bounded(text: str, problem: str) -> None:
    """It may be as large as a ConfigMap, and is read for every GPU in mode mig."""
    assert [str(one) for one in rejected(load_device_config(text))] == [problem]


def test_a_table_may_be_as_large_as_that() -> None:
    """At every bound it is accepted."""
    config = device_config(table_of(models=256, groups=128, items=16))

    assert len(config.geometries.entries[0].groups) == 128
