"""Settings that an operator writes, and the words in which a wrong one is sent back."""

import pytest

from allocator.config.node_templates import template_kinds
from allocator.config.settings import (
    DEFAULTS,
    LARGEST,
    FleetScope,
    Settings,
    SettingsError,
    load_settings,
    settings_of,
)
from allocator.model.request import Mode

BAD_URLS = (
    ("topo-master:9001", "/node_group"),
    ("ftp://topo-master/node_group", "URL of an HTTP server"),
    ("file:///etc/passwd", "URL of an HTTP server"),
    ("http://", "URL of an HTTP server"),
    ("http:///node_group", "URL of an HTTP server"),
    ("http://admin:secret@topo-master/node_group", "password"),
    ("http://a@b", "password"),
    ("http://topo master/", "URL of an HTTP server"),
    ("http://topo-master/\u00e9", "URL of an HTTP server"),
    ("http://topo-master:999999/", "URL of an HTTP server"),
    ("http://topo-master/#part", "URL of an HTTP server"),
    ("http://TOPO/", "URL of an HTTP server"),
    (f"http://{'a' * 300}/", "URL of an HTTP server"),
    ("h" * 3000, "2048"),
)


@pytest.mark.parametrize(
    "text", ["", "  \n", "# only a comment\n"], ids=["empty", "blank", "comment"]
)
def test_nothing_said_means_the_defaults(text: str) -> None:
    """Installing without a word must work."""
    assert settings_of(text) == DEFAULTS


def test_what_is_said_is_taken() -> None:
    """Keys are spelt as in the ConfigMap."""
    found = settings_of("fleet: closed\nvolcanoSchedulers: [a, b]\nhostRoot: /var/lib/vgpu\n")

    assert (found.fleet, found.volcano_schedulers) == (FleetScope.CLOSED, ("a", "b"))
    assert found.host_root == "/var/lib/vgpu"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("fleet: ajar", ["ajar", "fleet", "open, closed"], id="unknown-value"),
        pytest.param("enforcement: kill", ["kill", "report, evict"], id="unknown-enforcement"),
        pytest.param("flet: open", ["flet", "nodeAgent"], id="misspelt-key"),
        pytest.param("fleet: [open", ["YAML"], id="not-yaml"),
        pytest.param("[]", ["array"], id="a-list"),
        pytest.param("staleAfterSeconds: 1", ["10", "staleAfterSeconds"], id="too-small"),
        pytest.param("defaultMode: memory-only", ["memory-only", "hami-core"], id="no-default"),
        pytest.param("nodeTemplates: [{model: Z9}]", ["Z9", "memory"], id="unknown-model"),
        pytest.param("nodeTemplates: [{model: Tesla T4, mode: mig}]", ["MIG"], id="cannot-be-cut"),
        pytest.param("nodeTemplates: [{model: Tesla T4, gpus: 0}]", ["gpus"], id="no-gpus"),
        pytest.param("vocabularies: []", ["lacks volcano", "add volcano"], id="none-served"),
        pytest.param("vocabularies: [gpushare]", ["lacks volcano"], id="no-slots"),
        pytest.param("vocabularies: [volcano, koordinator]", ["[1]", "koordinator"], id="unknown"),
        pytest.param("vocabularies: [Volcano]", ["Volcano", "volcano, gpushare"], id="capital"),
        pytest.param("vocabularies: ['volcano ']", ["volcano "], id="blank-at-the-end"),
        pytest.param("vocabularies: volcano", ["vocabularies"], id="vocabularies-no-list"),
        pytest.param("vocabularies: {volcano: true}", ["vocabularies"], id="vocabularies-a-map"),
        pytest.param("vocabularies: [1]", ["vocabularies[0]"], id="a-number"),
        pytest.param("vocabularies: null", ["vocabularies"], id="vocabularies-null"),
        pytest.param("vocabularies: ['']", ["vocabularies[0]"], id="empty-name"),
        pytest.param(
            f"vocabularies: [{', '.join(['volcano'] * 65)}]", ["64"], id="vocabularies-endless"
        ),
        pytest.param("hostRoot: var/lib/vgpu", ["var/lib/vgpu", "absolute"], id="relative"),
        pytest.param("hostRoot: /opt/../vgpu", ["/opt/../vgpu", ".."], id="upwards"),
        pytest.param("hostRoot: /opt/vgpu/", ["slash"], id="slash"),
        pytest.param("hostRoot: /", ["/usr/local/vgpu"], id="root"),
        pytest.param("hostRoot: ''", ["hostRoot"], id="empty"),
        pytest.param('hostRoot: "/opt/vgpu\\n"', ["hostRoot"], id="line-break"),
        pytest.param("hostRoot: /opt", ["must contain vgpu"], id="not-its-own"),
        pytest.param("hostRoot: /dev/vgpu", ["/dev"], id="devices"),
        pytest.param("hostRoot: /var/lib/kubelet/vgpu", ["/var/lib/kubelet"], id="kubelet"),
        pytest.param("hostRoot: /var/lib/vgpu-admission", ["/var/lib/vgpu"], id="state"),
        pytest.param("hostRoot: /usr/local/vgpu/vgpu", ["/usr/local/vgpu"], id="in-the-default"),
        pytest.param(f"hostRoot: /{'v' * 200}/vgpu", ["hostRoot"], id="long"),
        pytest.param("hostRoot: [/opt/vgpu]", ["hostRoot"], id="list"),
        pytest.param("gpuExclusiveRules: [{}]", ["gpuExclusiveRules[0]"], id="rule-of-all-pods"),
        pytest.param("gpuExclusiveRules: {a: b}", ["gpuExclusiveRules"], id="rule-not-listed"),
        pytest.param("gpuExclusiveRules: [a]", ["gpuExclusiveRules[0]"], id="rule-of-text"),
        pytest.param("gpuExclusiveRules: [{a: 1}]", ["gpuExclusiveRules[0]"], id="label-not-text"),
        pytest.param("gpuExclusiveRules: [{a: [b]}]", ["gpuExclusiveRules[0]"], id="label-list"),
        pytest.param("gpuExclusiveRules: [{'': b}]", ["gpuExclusiveRules[0]"], id="label-no-name"),
        pytest.param(
            f"gpuExclusiveRules: [{{a: {'b' * 64}}}]", ["gpuExclusiveRules[0]"], id="label-long"
        ),
        pytest.param(
            f"gpuExclusiveRules: [{', '.join(['{a: b}'] * 65)}]", ["64"], id="rules-without-end"
        ),
        *(
            pytest.param(f"nodeGroupURL: {url!r}", ["nodeGroupURL", said], id=f"url-{number}")
            for number, (url, said) in enumerate(BAD_URLS)
        ),
        pytest.param("x" * (LARGEST + 1), [str(LARGEST)], id="too-long"),
        pytest.param("a: &a [1]\nb: *a\nfleet: open", ["unknown field"], id="anchors"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(text: str, names: list[str]) -> None:
    """Whoever wrote it finds the value, and what would do."""
    with pytest.raises(SettingsError) as error:
        settings_of(text)

    assert [name for name in names if name not in str(error.value)] == []


@pytest.mark.parametrize(
    ("text", "replacement"),
    [
        pytest.param("bindFailure: fail", "manifests/components/bind-ignore", id="bind-failure"),
        pytest.param("gangDeadlock: evict", "nothing evicts gangs", id="gang-deadlock"),
    ],
)
def test_a_removed_setting_is_ignored_with_a_warning(text: str, replacement: str) -> None:
    """An upgrade keeps the rest of the file; the warning says what does the work now."""
    loaded = load_settings(f"fleet: closed\n{text}\n")
    (warning,) = loaded.warnings

    assert loaded.value == Settings(fleet=FleetScope.CLOSED)
    assert text.partition(":")[0] in warning.path
    assert "removed" in str(warning)
    assert replacement in str(warning)


def test_a_template_offers_what_its_node_would() -> None:
    """Known by its product name alone; the larger of two nodes counts."""
    kind = "model: NVIDIA A30, mode: mig"
    text = f"nodeTemplates: [{{{kind}, gpus: 2}}, {{{kind}, gpus: 4}}]"
    ((offer, count),) = template_kinds(settings_of(text).node_templates).items()

    assert (offer.model, offer.mode, count) == ("NVIDIA A30", Mode.MIG, 4)
    assert offer.board is not None


def test_a_template_of_an_unknown_model_says_its_memory() -> None:
    """Tomorrow's GPU can be planned for today."""
    text = "nodeTemplates: [{model: Z9, memory: 500000}]"
    (offer,) = template_kinds(settings_of(text).node_templates)

    assert (offer.model, offer.memory) == ("Z9", 500000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('reviewSources: ["10.0.0.0/8", "x"]', 'reviewSources[1] "x" is not an address'),
        ('reviewSources: "10.0.0.0/8"', "Expected `array`"),
        ("reviewSources: [1]", "Expected `str`"),
        (f"reviewSources: [{', '.join(['10.0.0.1'] * 65)}]", "length <= 64"),
        ("reviewClientCA: x", "reviewClientCA is not accepted: it is not one or more"),
        ("reviewClientCA: [x]", "Expected `str`"),
        (f"reviewClientCA: {'x' * 65_537}", "length <= 65536"),
        ("reviewClientCa: x", "unknown field `reviewClientCa`"),
    ],
)
def test_callers_of_hooks_that_nobody_can_be(text: str, told: str) -> None:
    """With any of these in force, no pod of a labelled namespace could be created."""
    with pytest.raises(SettingsError) as refused:
        load_settings(text)

    assert told in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://topo-master.metax-operator:9001/node_group",
        "https://10.0.0.7/node_group?fresh=1",
        "http://[fd00::7]:9001/node_group",
        "http://topo-master",
    ],
)
def test_where_the_tree_of_supernodes_is_read_is_a_url(url: str) -> None:
    """By name or address."""
    assert settings_of(f"nodeGroupURL: {url!r}").node_group_url == url
