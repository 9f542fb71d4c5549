"""Pods that ask in HAMi's words are read as HAMi reads them, but for what it guesses or clamps."""

from collections.abc import Mapping
from typing import Any

import pytest

from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.settings import Settings, settings_of
from allocator.model.request import Mode, Priority
from tests.builders.model import A100_40, gpu, node, nodes_of, snapshot
from tests.builders.pods import Json, admitted, container, decided, pod, received, typed, variables
from tests.unit.test_docs import DOCS
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm
from webhook.admission.outcome import GpusHidden, Refused, Rewritten, Untouched

GPU, MEM, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
CORES, PRIORITY = "nvidia.com/gpucores", "nvidia.com/priority"
MODES, NUMA = "nvidia.com/vgpu-mode", "nvidia.com/numa-bind"
OWN = "vgpu-admission.io/"
SLOT = "volcano.sh/vgpu-number"
SERVED = "vocabularies: [volcano, gpushare, hami]\n"
FLEET = snapshot(nodes_of(2, mode=Mode.MIG), nodes_of(4, name="n1"))
PAGE = (DOCS / "hami.md").read_text()


def around(text: str = "", **fields: Any) -> AdmissionContext:  # noqa: ANN401 -- any field
    settings = settings_of(SERVED + text)
    return AdmissionContext(
        settings=settings,
        vocabularies=configured_vocabularies(settings, DeviceConfig()),
        **{"snapshot": FLEET, "host_paths": True, **fields},
    )


def outcome_of(
    limits: Mapping[str, object], text: str = "", **annotations: str
) -> Refused | Rewritten:
    found = decided(pod(container(limits=limits), annotations=annotations), around(text))
    assert isinstance(found, Refused | Rewritten), found
    return found


def request_of(limits: Mapping[str, object], text: str = "", **annotations: str) -> Any:  # noqa: ANN401
    found = outcome_of(limits, text, **annotations)
    assert isinstance(found, Rewritten), found
    return found.request


@pytest.mark.parametrize(
    ("limits", "settings", "asked"),
    [
        pytest.param({GPU: 2}, "", (2, None, None, 100), id="alone-is-exclusive"),
        pytest.param({GPU: 1, PERCENT: 100}, "", (1, None, 100, 100), id="all-memory-is-too"),
        pytest.param({PERCENT: 100}, "", (1, None, 100, 100), id="without-a-number-too"),
        pytest.param({GPU: 1, PERCENT: 99}, "", (1, None, 99, 0), id="less-is-not"),
        pytest.param({GPU: 1, MEM: 3000}, "", (1, 3000, None, 0), id="memory-is-not"),
        pytest.param({GPU: 1, MEM: 0}, "", (1, None, None, 0), id="memory-of-nothing-is-not"),
        pytest.param({GPU: 1, CORES: 30}, "", (1, None, None, 30), id="cores-are-not"),
        pytest.param({GPU: 1, CORES: 0}, "", (1, None, None, 0), id="no-cores-are-not"),
        pytest.param({MEM: 3000}, "", (1, 3000, None, 0), id="one-by-default"),
        pytest.param({CORES: 20}, "", (1, None, None, 20), id="cores-alone"),
        pytest.param({MEM: 3, CORES: 5}, "{memoryFactor: 1024}", (1, 3072, None, 5), id="factor"),
        pytest.param({MEM: 3000}, "{defaultGPUNum: 2}", (2, 3000, None, 0), id="default-number"),
        pytest.param({GPU: 1}, "{defaultMemory: 5000}", (1, 5000, None, 0), id="default-memory"),
        pytest.param(
            {GPU: 1, PERCENT: 100}, "{defaultMemory: 5000}", (1, None, 100, 100), id="percent-first"
        ),
        pytest.param({MEM: 100}, "{defaultCores: 25}", (1, 100, None, 25), id="default-cores"),
        pytest.param({GPU: 1}, "{defaultCores: 25}", (1, None, None, 100), id="exclusive-first"),
    ],
)  # fmt: skip
def test_amounts_mean_what_they_mean_to_hami(
    limits: Json, settings: str, asked: tuple[int | None, ...]
) -> None:
    """Number, MiB, percent and cores, by the defaults of the cluster."""
    (one,) = request_of(limits, f"hami: {settings}" if settings else "").containers

    assert (one.count, one.memory, one.percent, one.cores) == asked


def test_the_pod_keeps_its_names_and_gets_a_slot() -> None:
    """Our device plugin is called by the slot; a second pass and the validation change nothing."""
    view = around()
    once = admitted(received(pod(container(limits={GPU: 2, MEM: 3000, CORES: 30}))), view)

    assert once["spec"]["containers"][0]["resources"]["limits"] == {
        GPU: "2",
        MEM: "3k",
        CORES: "30",
        SLOT: "2",
    }
    assert admitted(once, view) == once
    assert not isinstance(confirm(typed(once), view), Refused)


@pytest.mark.parametrize(
    ("limits", "annotations", "reason"),
    [
        ({GPU: 1, MEM: 1000, PERCENT: 50}, {}, "ConflictingRequest"),
        ({GPU: 1, PERCENT: 0}, {}, "MalformedRequest"),
        ({GPU: 1, PERCENT: 101}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: 2**31}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "1500m"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "4Gi"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "-1"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: ""}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "a" * 4096}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "1\u202e2"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "1\n"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "0x10"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "٣"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "1e400"}, {}, "MalformedRequest"),
        ({GPU: 1, MEM: "nan"}, {}, "MalformedRequest"),
        ({GPU: 1, CORES: 250}, {}, "GpuCoresShort"),
        ({GPU: 1, CORES: "0.5"}, {}, "MalformedRequest"),
        ({GPU: 0, MEM: 1000}, {}, "ConflictingRequest"),
        ({GPU: 17}, {}, "TooManyDevices"),
        ({GPU: "1.5"}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: 2}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: -1}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "high"}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "1Ki"}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "1\u00a0"}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: ""}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "9" * 400}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "500m"}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "0x1"}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: "\x00"}, {}, "MalformedRequest"),
        ({PRIORITY: 1}, {}, "MalformedRequest"),
        ({PRIORITY: 0}, {}, "MalformedRequest"),
        ({GPU: 1, PRIORITY: 0}, {}, "PriorityNotAllowed"),
        ({GPU: 1, "nvidia.com/gpumemory": 5}, {}, "MalformedRequest"),
        ({GPU: 1, "nvidia.com/mig-1g.5gb": 1}, {}, "ConflictingRequest"),
        ({GPU: 1, "aliyun.com/gpu-mem": 1}, {}, "ConflictingRequest"),
        ({GPU: 1, SLOT: 2}, {}, "ConflictingRequest"),
        *(
            ({GPU: 1, MEM: 100}, {MODES: text}, "ModeUnavailable")
            for text in (
                "shared", "MIG", "mig;hami-core", "mig hami-core", "x" * 10_000, "mig\n,a", "[mig]",
                "\u202emig", "mig,,exclusive", "memory-only", "native", "hami-core,sgpu", "\x00",
            )
        ),
        *(
            ({GPU: 1}, {NUMA: text}, "MalformedRequest")
            for text in (
                "yes", "", " true", "TrUe", "true\n", "2", "on", "true,false", "\u202etrue",
                "y" * 9999, "\x00", "[true]",
            )
        ),
        ({GPU: 1, MEM: 100}, {MODES: "mig", f"{OWN}mode": "hami-core"}, "ConflictingRequest"),
        ({GPU: 1}, {"hami.io/gpu-scheduler-policy": "mutex"}, "MalformedRequest"),
        ({GPU: 1}, {"nvidia.com/nouse-gputype": " "}, "MalformedRequest"),
    ],
)  # fmt: skip
def test_what_hami_clamps_or_drops_is_refused(
    limits: Json, annotations: dict[str, str], reason: str
) -> None:
    """With the field, the value and what would do; the page has a row for the reason."""
    found = decided(pod(container(limits=limits), annotations=annotations), around())

    assert isinstance(found, Refused), found
    first = found.findings.first
    assert str(first.reason) == reason
    assert first.remedy
    assert len(first.what) < 400
    assert not {"\n", "\x00", "\u202e"} & set(str(first))
    assert f"`{reason}`" in PAGE


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("mig", Mode.MIG),
        ("hami-core", Mode.HAMI_CORE),
        ("hami-core,mig", None),
        (" mig , hami-core ", None),
        ("mig,mig", Mode.MIG),
        ("mig,", Mode.MIG),
        ("", None),
        (" , ", None),
    ],
)
def test_a_list_of_modes_leaves_the_choice(text: str, mode: Mode | None) -> None:
    """One mode alone is named; of several the best is taken, and the list stays as it is."""
    view = around()
    written = pod(container(limits={GPU: 1, MEM: 3000}), annotations={MODES: text})
    once = admitted(received(written), view)

    assert request_of({GPU: 1, MEM: 3000}, **{MODES: text}).named_mode is mode
    assert once["metadata"]["annotations"][MODES] == text
    assert admitted(once, view) == once


@pytest.mark.parametrize(("text", "bound"), [("true", True), ("T", True), ("f", False)])
def test_numa_bind_is_read_as_go_reads_a_bool(text: str, *, bound: bool) -> None:
    """As HAMi does."""
    assert request_of({GPU: 2}, **{NUMA: text}).one_numa is bound


def test_each_container_has_its_own_priority() -> None:
    """It becomes the variable that the library reads; the annotation counts for the others."""
    view = around(high_priority=True)
    written = pod(
        container("first", limits={GPU: 1, MEM: 100, PRIORITY: 0}),
        container("second", limits={GPU: 1, MEM: 100, PRIORITY: 1}),
        container("third", limits={GPU: 1, MEM: 100}),
        annotations={f"{OWN}mode": "hami-core", f"{OWN}task-priority": "high"},
    )
    found = admitted(received(written), view)

    named = [variables(found, name)["CUDA_TASK_PRIORITY"] for name in ("first", "second", "third")]
    assert named == [str(int(p)) for p in (Priority.HIGH, Priority.LOW, Priority.HIGH)]


def test_refusals_speak_hamis_names_and_units() -> None:
    """Whoever asks in GiB by the factor of the cluster is answered in GiB."""
    found = outcome_of({GPU: 1, MEM: 9000}, "hami: {memoryFactor: 1024}\n")

    assert isinstance(found, Refused)
    assert MEM in found.findings.first.field
    assert "9000 GiB" in found.findings.first.what


def test_nobody_opts_out_by_a_label() -> None:
    """The pod is limited like any other, and its user is told."""
    written = pod(container(limits={GPU: 1, MEM: 100}))
    written["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    found = decided(written, around())

    assert isinstance(found, Rewritten)
    assert any("hami.io/webhook is not read" in text for text in found.warnings)


def test_without_the_setting_the_names_are_somebody_elses() -> None:
    """NVIDIA's plugin serves them: nothing is decided, and nothing hidden."""
    view = AdmissionContext(settings=Settings(), snapshot=FLEET, host_paths=True)

    assert isinstance(decided(pod(container(limits={GPU: 1})), view), Untouched)


def test_a_pod_on_one_numa_node_is_not_refused_for_a_fleet_that_has_it() -> None:
    """Whether a NUMA node has as many GPUs is for the node to say."""
    there = node("n0", *(gpu(A100_40, index=i) for i in range(4)))

    found = decided(
        pod(container(limits={GPU: 4}), annotations={NUMA: "true"}),
        around(snapshot=snapshot(there)),
    )
    assert isinstance(found, Rewritten)


@pytest.mark.parametrize("limits", [{GPU: 0, PRIORITY: 1}, {GPU: 0}, {GPU: 0, MEM: 0, CORES: 0}])
def test_a_pod_that_asks_for_no_gpu_gets_none(limits: Json) -> None:
    """A priority beside it asks for nothing."""
    assert isinstance(decided(pod(container(limits=limits)), around()), GpusHidden)


@pytest.mark.parametrize(("slots", "right"), [(2, True), (1, False), (3, False)])
def test_the_slot_goes_with_the_default_number(slots: int, *, right: bool) -> None:
    """A second pass finds the slots of the first; any other number is a second request."""
    view = around("hami: {defaultGPUNum: 2}")
    found = decided(pod(container(limits={MEM: 3000, SLOT: slots})), view)

    assert isinstance(found, Rewritten if right else Refused)


@pytest.mark.parametrize("name", [GPU, PERCENT, CORES])
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-1", "+-1", "1.5", "500m", "1e400", "1e-400", "0x1", "one", "nan", "inf", "٣",
        "1\n", "1\x00", "\u202e1", "1,2", "9" * 400, "1Ki", "1Ei", "true", "{}",
    ],
)  # fmt: skip
def test_hostile_amounts_are_refused(name: str, text: str) -> None:
    """Nobody gets a GPU that is not limited, by an amount that cannot be read."""
    found = decided(pod(container(limits={GPU: "1", name: text})), around())

    assert isinstance(found, Refused), found
    first = str(found.findings.first)
    assert name in first or found.findings.first.field.count(name)
    assert len(first) < 800
    assert not {"\n", "\x00", "\u202e"} & set(first)


@pytest.mark.parametrize("key", ["hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy"])
@pytest.mark.parametrize(
    "text",
    [
        "pack", "BINPACK", "binpack;spread", "[spread]", "spread\n", "\x00", "\u202espread",
        "x" * 10_000, "mutex", "binpack,mutx", "bin pack", "null",
    ],
)  # fmt: skip
def test_hostile_policies_are_refused(key: str, text: str) -> None:
    """A policy that nobody knows would be ignored without a word."""
    found = decided(pod(container(limits={GPU: 1}), annotations={key: text}), around())

    if key.startswith("hami.io/gpu") and text.strip() == "spread":  # its list is trimmed, as HAMi's
        assert isinstance(found, Rewritten)
        return
    assert isinstance(found, Refused), found
    assert key in str(found.findings.first)
    assert not {"\n", "\x00", "\u202e"} & set(str(found.findings.first))
    assert len(str(found.findings.first)) < 800


FILTERS = ("use-gputype", "nouse-gputype", "use-gpuuuid", "nouse-gpuuuid")


@pytest.mark.parametrize("filter_", FILTERS)
@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_000, "\x00", "\u202eA100", "A100\nT4", ".*", "[", "A100;T4", "../..", "{}", "null",
        ",".join(["A100"] * 300),
    ],
)  # fmt: skip
def test_hostile_filters_select_by_what_they_say(filter_: str, text: str) -> None:
    """What names no GPU excludes none and selects none, and none of it is written on."""
    written = pod(container(limits={GPU: 1, MEM: 100}), annotations={f"nvidia.com/{filter_}": text})
    found = decided(written, around("fleet: closed"))

    refused = filter_ == "use-gputype" or text.count(",") > 256  # a UUID may come with a new node
    assert isinstance(found, Refused if refused else Rewritten), found
    if isinstance(found, Refused):
        first = str(found.findings.first)
        assert not {"\n", "\x00", "\u202e"} & set(first)
        assert len(first) < 1000


def test_filters_choose_among_the_gpus() -> None:
    """Each of the four, by parts of names and by UUIDs."""
    limits = {GPU: 1, MEM: 100}
    by = {
        f"nvidia.com/{name}": text
        for name, text in zip(FILTERS, ("A100,T4", "H100", "GPU-a, GPU-b", "GPU-c"), strict=True)
    }
    found = decided(pod(container(limits=limits), annotations=by), around(snapshot=snapshot()))

    assert isinstance(found, Rewritten), found
    filters = found.request.filters
    assert (filters.models, filters.not_models) == (("A100", "T4"), ("H100",))
    assert (filters.uuids, filters.not_uuids) == (("GPU-a", "GPU-b"), ("GPU-c",))


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("nvidia.com/vgpu-modes", "nvidia.com/vgpu-mode"),
        ("nvidia.com/gpu-numa-bind", "nvidia.com/numa-bind"),
        ("nvidia.com/use-gputypes", "nvidia.com/use-gputype"),
        ("nvidia.com/vgpu-mode", None),
    ],
)
def test_misspelt_keys_are_pointed_out(key: str, right: str | None) -> None:
    """A limit that is misspelt would not be applied, and nobody would be told."""
    found = outcome_of({GPU: 1, MEM: 100}, **{key: "hami-core"})

    assert isinstance(found, Rewritten)
    told = [text for text in found.warnings if "is not read" in text]
    assert told == ([] if right is None else [f"pod: annotation {key} is not read; use {right}"])


@pytest.mark.parametrize(
    ("accepted", "named"),
    [
        ("mps", Mode.MPS),
        ("mps,hami-core", Mode.HAMI_CORE),
        ("mig,mps", Mode.MIG),
        ("mps,mig,hami-core", None),
    ],
)
def test_mps_is_chosen_for_no_pod_that_accepts_another_mode(
    accepted: str, named: Mode | None
) -> None:
    """What is left without it is binding: a pod that does not accept mig never gets it."""
    assert request_of({GPU: 1, MEM: 3000}, **{MODES: accepted}).named_mode is named
