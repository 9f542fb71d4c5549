"""What a Node tells of the machine: who else serves its GPUs, and what its runtime reads."""

import pytest

from agent.doctor.container_runtime import containerd_major, reads_cdi
from agent.doctor.facts import Runtime
from agent.node.other_plugins import plugin_conflict, registration_conflict, slot_conflict
from allocator.catalog.vocabularies import HAMI, SLOT, VOCABULARIES, VOLCANO

MEMORY = "volcano.sh/vgpu-memory"


@pytest.mark.parametrize(
    ("allocatable", "ours", "named"),
    [
        pytest.param({"cpu": "2", "nvidia.com/gpu": "2"}, [], "nvidia.com/gpu", id="nvidia"),
        pytest.param({"nvidia.com/mig-1g.5gb": "7"}, [], "nvidia.com/mig-1g.5gb", id="nvidia-mig"),
        pytest.param({"volcano.sh/gpu-memory": "9"}, [], "volcano.sh/gpu-memory", id="old-volcano"),
        pytest.param({MEMORY: "3k"}, [], MEMORY, id="volcanos-plugin"),
        pytest.param({"aliyun.com/gpu-mem": "15"}, [], "aliyun.com/gpu-mem", id="gpushare"),
        pytest.param({MEMORY: "3000"}, [MEMORY], "", id="ours"),
        pytest.param({MEMORY: "0", "nvidia.com/gpu": "0"}, [], "", id="gone"),
        pytest.param({SLOT: "20"}, [], "", id="our-own-slots"),
        pytest.param({"nvidia.com/gpu": "many"}, [], "", id="no-number"),
        pytest.param({}, [], "", id="nothing"),
    ],
)
def test_another_plugin_is_known_by_what_it_gives_out(
    allocatable: dict[str, str], ours: list[str], named: str
) -> None:
    """Where something is allocatable that no agent of ours added, somebody serves it."""
    conflict = plugin_conflict(allocatable, ours, VOCABULARIES)

    assert named in conflict
    assert bool(conflict) == bool(named)


@pytest.mark.parametrize("name", HAMI.resources)
def test_hamis_resources_are_ours_only_where_we_offered_them(name: str) -> None:
    """NVIDIA's plugin and HAMi's have the first name, too; an agent of ours notes what it adds."""
    served = (*VOCABULARIES, HAMI)

    assert name in plugin_conflict({name: "8"}, [], served)
    assert plugin_conflict({name: "8"}, [name], served) == ""


@pytest.mark.parametrize(
    ("registered", "named"),
    [
        pytest.param([], "", id="nobody"),
        pytest.param(["nvidia.com/gpu"], "nvidia.com/gpu", id="nvidias-or-hamis"),
        pytest.param(["example.com/nic", "nvidia.com/gpumem"], "nvidia.com/gpumem", id="mock"),
        pytest.param([SLOT, "example.com/nic"], "", id="ours-and-another-device"),
    ],
)
def test_a_plugin_that_registers_what_we_write_is_another(
    registered: list[str], named: str
) -> None:
    """Though we noted the resource as ours: kubelet writes the plugin's number over it."""
    conflict = registration_conflict(registered, (*VOCABULARIES, HAMI))

    assert named in conflict
    assert bool(conflict) == bool(named)
    assert registration_conflict(["nvidia.com/gpu"], VOCABULARIES) == ""


@pytest.mark.parametrize(("ours", "known"), [([], True), (["aliyun.com/gpu-mem"], False)])
def test_a_vocabulary_left_out_is_another_plugins(ours: list[str], *, known: bool) -> None:
    """Its plugin gives out the same GPUs; what we offered a moment ago is no plugin."""
    conflict = plugin_conflict({"aliyun.com/gpu-mem": "15"}, ours, (VOLCANO,))

    assert ("aliyun.com/gpu-mem" in conflict) is known


@pytest.mark.parametrize(
    ("count", "registered", "theirs"),
    [
        pytest.param("10", ["GPU-1-0", "GPU-1-1"], True, id="theirs"),
        pytest.param("10", ["slot-0000", "slot-0001"], False, id="ours"),
        pytest.param("0", ["GPU-1-0"], False, id="theirs-that-is-gone"),
        pytest.param("10", [], False, id="nothing-known"),
    ],
)
def test_slots_of_another_plugin_are_known_by_their_names(
    count: str, registered: list[str], *, theirs: bool
) -> None:
    """The resource is the same; the ids are not."""
    assert bool(slot_conflict({SLOT: count}, SLOT, registered)) is theirs


@pytest.mark.parametrize(
    ("runtime", "reads"),
    [
        ("containerd://1.6.20~ds1", False),
        ("containerd://1.7.28", False),
        ("containerd://2.0.0", True),
        ("containerd://v2.2.1", True),
        ("containerd://10.0", True),
        ("cri-o://1.22.5", False),
        ("cri-o://1.34.0", True),
        ("docker://28.0.1", False),
        ("", False),
        ("containerd://", False),
    ],
)
def test_a_runtime_reads_cdi_from_the_release_that_turned_it_on(
    runtime: str, *, reads: bool
) -> None:
    """Where it does not, what Allocate answers is dropped without a word."""
    assert reads_cdi(runtime) is reads


def configured(
    *, cdi: bool | None = None, folders: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
) -> Runtime:
    return Runtime(path="/etc/x", cdi=cdi, cdi_folders=folders)


ON, OFF, SILENT = configured(cdi=True), configured(cdi=False), configured()
BROKEN = Runtime(path="/etc/x", problem="not TOML")


@pytest.mark.parametrize(
    ("runtime", "configurations", "reads"),
    [
        pytest.param("containerd://2.2.1", [SILENT], True, id="as-it-is-made"),
        pytest.param("containerd://2.2.1", [OFF], False, id="turned-off"),
        pytest.param("containerd://1.7.28", [ON], True, id="turned-on"),
        pytest.param("containerd://1.7.28", [SILENT], False, id="as-it-was-made"),
        pytest.param("containerd://1.6.20", [ON], False, id="knows-nothing-of-it"),
        pytest.param("containerd://2.2.1", [ON, OFF], False, id="not-of-one-mind"),
        pytest.param("containerd://2.2.1", [BROKEN], True, id="unreadable-says-nothing"),
        pytest.param("containerd://2.2.1", [BROKEN, OFF], False, id="the-readable-one-counts"),
        pytest.param(
            "containerd://2.2.1", [configured(folders=("/opt/cdi",))], False, id="looks-elsewhere"
        ),
        pytest.param(
            "containerd://2.2.1", [configured(cdi=True, folders=("/run/cdi",))], True, id="a-link"
        ),
        pytest.param("cri-o://1.34.0", [OFF], True, id="not-its-configuration"),
        pytest.param("docker://28.0.1", [ON], False, id="no-such-runtime"),
    ],
)
def test_what_is_configured_comes_before_the_release(
    runtime: str, configurations: list[Runtime], *, reads: bool
) -> None:
    """A runtime that drops what Allocate answers would start containers without their limits."""
    assert reads_cdi(runtime, configurations) is reads


@pytest.mark.parametrize(
    ("runtime", "major"),
    [("containerd://2.2.1", 2), ("containerd://v1.7.0", 1), ("cri-o://1.34.0", None), ("", None)],
)
def test_the_release_says_how_files_are_merged(runtime: str, major: int | None) -> None:
    """Only containerd's does."""
    assert containerd_major(runtime) == major
