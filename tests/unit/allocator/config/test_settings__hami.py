"""Settings beside HAMi: who serves the nodes, and who is told of them."""

import pytest

from allocator.config.device_config import DeviceConfig, configured_vocabularies
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
