"""Settings beside HAMi: who serves the nodes, and who is told of them."""

from typing import Any

import msgspec
import pytest

from allocator.config.device_config import (
    DeviceConfig,
    configured_vocabularies,
    vocabulary_problems,
)
from allocator.config.settings import NodeAgent, SettingsError, settings_of


def test_hamis_plugin_may_serve_the_nodes() -> None:
    """It is another plugin, as Volcano's is."""
    settings = settings_of("nodeAgent: hami\nvocabularies: [hami]")

    assert settings.node_agent is NodeAgent.HAMI
    assert settings.node_agent.is_other
    assert not settings.hami_register


@pytest.mark.parametrize("names", ["", "volcano", "volcano, hami", "gpushare, hami"])
def test_hamis_plugin_serves_its_own_vocabulary_alone(names: str) -> None:
    """Its nodes have no resource of the others; the sentence says what to write."""
    with pytest.raises(SettingsError, match=r"set vocabularies: \[hami\]"):
        settings_of(f"nodeAgent: hami\nvocabularies: [{names}]")


def test_its_pods_are_served_by_its_own_resource() -> None:
    """The slot of our plugin would keep them from every node of HAMi's."""
    settings = settings_of("nodeAgent: hami\nvocabularies: [hami]")

    (vocabulary,) = configured_vocabularies(settings, DeviceConfig())
    assert vocabulary.slot == vocabulary.count == "nvidia.com/gpu"


@pytest.mark.parametrize(("agent", "names"), [("upstream", "volcano"), ("hami", "hami")])
def test_only_nodes_of_our_agents_are_registered(agent: str, names: str) -> None:
    """A plugin of others registers its nodes itself, and two writers would fight."""
    with pytest.raises(SettingsError, match=rf"hamiRegister true .* nodeAgent is {agent}"):
        settings_of(f"nodeAgent: {agent}\nhamiRegister: true\nvocabularies: [{names}]")

    assert settings_of("hamiRegister: true").hami_register


@pytest.mark.parametrize(
    "text",
    [
        "nodeAgent: HAMi",
        "nodeAgent: [hami]",
        "nodeAgent: hami-core",
        "nodeAgent: null",
        "hamiRegister: 'yes'",
        "hamiRegister: 1",
        "hamiRegister: null",
        "hamiRegister: [true]",
        "hamiRegister: {on: true}",
        "hamiregister: true",
    ],
)
def test_hostile_values_are_refused(text: str) -> None:
    """The sentence names the setting."""
    with pytest.raises(SettingsError, match=r"nodeAgent|(?i:hamiRegister)"):
        settings_of(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("resourceMemoryName", "nvidia.com/gpu"),
        ("resourceMemoryPercentageName", "nvidia.com/gpumem"),
        ("resourcePriorityName", "nvidia.com/gpucores"),
        ("resourceCountName", "volcano.sh/vgpu-number"),
        ("resourceMemoryName", "volcano.sh/vgpu-memory"),
        ("resourceMemoryName", "aliyun.com/gpu-mem"),
        ("resourceCoreName", "metax-tech.com/vcore"),
        ("resourceCountName", '""'),
        ("resourceCountName", "gpu"),
        ("resourceCountName", '"nvidia.com/gpu\\n"'),
        ("resourceCountName", '"a/b/c"'),
        ("resourceCountName", "[nvidia.com/gpu]"),
        ("resourceCountName", "null"),
        ("resourceCountName", '"\\u202envidia.com/gpu"'),
        ("resourceCountName", "a/" + "b" * 64),
        ("resourceCountName", "a" * 254 + "/b"),
        ("memoryFactor", "0"),
        ("memoryFactor", "-1"),
        ("memoryFactor", "1048577"),
        ("memoryFactor", "true"),
        ("memoryFactor", "1.5"),
        ("defaultMemory", "-1"),
        ("defaultMemory", "2147483648"),
        ("defaultMemory", "4Gi"),
        ("defaultMemory", ".inf"),
        ("defaultCores", "101"),
        ("defaultCores", "-1"),
        ("defaultCores", "'50'"),
        ("defaultGPUNum", "0"),
        ("defaultGPUNum", "17"),
        ("defaultGPUNum", "null"),
    ],
)  # fmt: skip
def test_hostile_values_of_hamis_section_are_refused(key: str, value: str) -> None:
    """Also a name of another resource: one of the two would be read in the other's unit."""
    with pytest.raises(SettingsError, match=rf"hami\.{key}"):
        settings_of(f"hami: {{{key}: {value}}}")


@pytest.mark.parametrize("text", ["null", "[]", "x", "{deviceSplitCount: 10}", "{memoryfactor: 1}"])
def test_hamis_section_is_a_table_of_known_keys(text: str) -> None:
    """What would have no effect is not taken."""
    with pytest.raises(SettingsError, match="hami"):
        settings_of(f"hami: {text}")


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("hami: {deviceSplitCount: 10}", "accepted: resourceCountName, "),
        ("scoreWeights: {gpu: 10}", "accepted: memory, "),
        ("deviceSplitCount: 10", "accepted: fleet, "),
    ],
)
def test_an_unknown_key_is_answered_with_those_of_its_table(text: str, known: str) -> None:
    """Not with those of another."""
    with pytest.raises(SettingsError, match=known):
        settings_of(text)


def test_the_names_may_be_swapped() -> None:
    """Each stands once, and all five can be others."""
    names = settings_of("hami: {resourceCountName: x.y/gpu, resourceMemoryName: nvidia.com/gpu}")

    (hami,) = [
        v
        for v in configured_vocabularies(
            msgspec.structs.replace(names, vocabularies=("volcano", "hami")), DeviceConfig()
        )
        if v.name == "hami"
    ]
    assert (hami.count, hami.memory) == ("x.y/gpu", "nvidia.com/gpu")


HAMI_TOO = "vocabularies: [volcano, gpushare, metax-sgpu, hami]"


@pytest.mark.parametrize(
    ("key", "devices", "name"),
    [
        ("resourceCountName", {"count_name": "nvidia.com/gpu"}, "nvidia.com/gpu"),
        ("resourceMemoryName", {"memory_name": "nvidia.com/gpumem"}, "nvidia.com/gpumem"),
        (
            "resourceMemoryPercentageName",
            {"percent_name": "nvidia.com/gpumem-percentage"},
            "nvidia.com/gpumem-percentage",
        ),
        ("resourceCoreName", {"cores_name": "nvidia.com/gpucores"}, "nvidia.com/gpucores"),
    ],
)
def test_a_name_of_volcanos_is_not_read_as_hamis(
    key: str, devices: dict[str, Any], name: str
) -> None:
    """Volcano's plugin registers it, in its unit; the sentence names both settings."""
    settings, renamed = settings_of(HAMI_TOO), DeviceConfig(**devices)
    served = configured_vocabularies(settings, renamed)
    names = [resource for vocabulary in served for resource in vocabulary.resources]

    assert [vocabulary.name for vocabulary in served] == ["volcano", "gpushare", "metax-sgpu"]
    assert len(names) == len(set(names))
    (problem,) = vocabulary_problems(settings, renamed)
    assert str(problem) == (
        f'settings.yaml: hami.{key}: "{name}" is {key} in device-config.yaml too, so the '
        "vocabulary hami is not served; accepted: another name in one of the two, or "
        "vocabularies without hami"
    )


@pytest.mark.parametrize(
    ("ours", "renamed", "lost"),
    [
        ("example.com/x", {"memory_name": "example.com/x"}, ["hami"]),
        ("example.com/x", {"count_name": "example.com/x"}, ["hami"]),
        ("example.com/x", {"cores_name": "nvidia.com/priority"}, ["hami"]),
        ("nvidia.com/gpumem", {"memory_name": "aliyun.com/gpu-mem"}, ["gpushare"]),
        ("nvidia.com/gpumem", {"memory_name": "metax-tech.com/vmemory"}, ["metax-sgpu"]),
        (
            "example.com/x",
            {"memory_name": "aliyun.com/gpu-mem", "cores_name": "example.com/x"},
            ["gpushare", "hami"],
        ),
        ("example.com/x", {"memory_name": "nvidia.com/gpumem"}, []),
        ("example.com/x", {"memory_name": "example.com/X"}, []),
        ("example.com/x", {}, []),
        ("nvidia.com/gpumem", {"count_name": "metax-tech.com/gpu"}, []),
    ],
)
def test_each_name_has_one_reader(ours: str, renamed: dict[str, Any], lost: list[str]) -> None:
    """Whatever is renamed to what; a vocabulary that is not served shares its names freely."""
    settings = settings_of(f"{HAMI_TOO}\nhami: {{resourceMemoryName: {ours}}}")
    devices = DeviceConfig(**renamed)
    served = configured_vocabularies(settings, devices)
    names = [resource for vocabulary in served for resource in vocabulary.resources]

    assert len(names) == len(set(names))
    assert set(settings.vocabularies) - {vocabulary.name for vocabulary in served} == set(lost)
    for name, problem in zip(lost, vocabulary_problems(settings, devices), strict=True):
        assert f"the vocabulary {name} is not served" in str(problem)
