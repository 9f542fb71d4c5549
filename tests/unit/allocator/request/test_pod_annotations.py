"""A pod's annotations name its mode, a MIG profile and the GPUs it accepts, or are refused."""

import pytest

from allocator.model.decision import Reason
from allocator.model.request import Filters, Mode
from allocator.request.pod_annotations import MOST_ITEMS
from tests.builders.containers import GPU_MEM, MEMORY, NUMBER, Resources, box, findings, request

VOLCANO: Resources = {NUMBER: "1", MEMORY: "3k"}
GPUSHARE: Resources = {GPU_MEM: "4"}
MODE = "volcano.sh/vgpu-mode"
PROFILE = "vgpu-admission.io/mig-profile"
ISOLATE = "vgpu-admission.io/isolate"
OWN_MODE = "vgpu-admission.io/mode"
USE = "nvidia.com/use-gputype"
NOT = "nvidia.com/nouse-gputype"
USE_UUIDS = "volcano.sh/vgpu-use-gpuuuid"
NOT_UUIDS = "volcano.sh/vgpu-nouse-gpuuuid"


@pytest.mark.parametrize(
    ("limits", "annotations", "mode"),
    [
        pytest.param(VOLCANO, {}, None, id="open"),
        pytest.param(VOLCANO, {MODE: "mig"}, Mode.MIG, id="mig"),
        pytest.param(VOLCANO, {MODE: "hami-core"}, Mode.HAMI_CORE, id="hami-core"),
        pytest.param(VOLCANO, {PROFILE: "1g.5gb"}, Mode.MIG, id="a-profile-means-mig"),
        pytest.param(GPUSHARE, {}, Mode.MEMORY_ONLY, id="accounting-only"),
        pytest.param(GPUSHARE, {ISOLATE: "true"}, Mode.HAMI_CORE, id="isolated"),
        pytest.param(GPUSHARE, {MODE: "hami-core"}, Mode.HAMI_CORE, id="volcanos-annotation"),
        pytest.param(GPUSHARE, {OWN_MODE: "hami-core"}, Mode.HAMI_CORE, id="ours-isolates"),
        pytest.param(GPUSHARE, {OWN_MODE: "memory-only"}, Mode.MEMORY_ONLY, id="as-we-write-it"),
        pytest.param(
            GPUSHARE, {ISOLATE: "true", MODE: "hami-core"}, Mode.HAMI_CORE, id="named-twice"
        ),
        pytest.param(VOLCANO, {ISOLATE: "true"}, None, id="needless-isolation"),
    ],
)
def test_the_mode_is_named_or_open(
    limits: Resources, annotations: dict[str, str], mode: Mode | None
) -> None:
    """By the vocabulary's own annotation; where it has none, by Volcano's or ours."""
    asked = request(box(limits), annotations=annotations)

    assert asked.mode is mode


@pytest.mark.parametrize(
    ("limits", "annotations", "message"),
    [
        pytest.param(
            VOLCANO,
            {MODE: "smi"},
            'pod: mode "smi" is not known; use mig, hami-core or mps, or remove '
            "volcano.sh/vgpu-mode [ModeUnavailable]",
            id="unknown-mode",
        ),
        pytest.param(
            VOLCANO,
            {MODE: ""},
            'pod: mode "" is not known; use mig, hami-core or mps, or remove '
            "volcano.sh/vgpu-mode [ModeUnavailable]",
            id="empty-mode",
        ),
        pytest.param(
            GPUSHARE,
            {ISOLATE: "yes"},
            'pod: vgpu-admission.io/isolate "yes" is not true; set it to "true", or remove '
            "vgpu-admission.io/isolate [MalformedRequest]",
            id="isolation-by-another-word",
        ),
        pytest.param(
            VOLCANO,
            {PROFILE: "1g"},
            'pod: vgpu-admission.io/mig-profile "1g" is not a MIG profile; name one as nvidia-smi '
            "does, e.g. 1g.5gb, or remove vgpu-admission.io/mig-profile [MalformedRequest]",
            id="no-profile",
        ),
        pytest.param(
            VOLCANO,
            {PROFILE: "1g.5gb", MODE: "hami-core"},
            'pod: vgpu-admission.io/mig-profile "1g.5gb" needs mode mig, but the mode is '
            "hami-core; remove vgpu-admission.io/mig-profile, or set volcano.sh/vgpu-mode to mig "
            "[ConflictingRequest]",
            id="profile-without-mig",
        ),
        pytest.param(
            GPUSHARE,
            {PROFILE: "1g.5gb"},
            'pod: vgpu-admission.io/mig-profile "1g.5gb" needs mode mig, but the mode is '
            "memory-only; remove vgpu-admission.io/mig-profile [ConflictingRequest]",
            id="profile-elsewhere",
        ),
        pytest.param(
            GPUSHARE,
            {PROFILE: "1g.5gb", ISOLATE: "true"},
            'pod: vgpu-admission.io/mig-profile "1g.5gb" needs mode mig, but the mode is '
            "hami-core; remove vgpu-admission.io/mig-profile [ConflictingRequest]",
            id="profile-of-an-isolated-pod",
        ),
        pytest.param(
            GPUSHARE,
            {MODE: "mig"},
            "pod: volcano.sh/vgpu-mode mig does not go with aliyun.com/gpu-mem, which GPUs in mode "
            "mig do not offer; use hami-core, or ask for volcano.sh/vgpu-number and its memory in "
            "MiB instead [ModeUnavailable]",
            id="mig-of-another-vocabulary",
        ),
        pytest.param(
            GPUSHARE,
            {ISOLATE: "true", OWN_MODE: "memory-only"},
            "pod: vgpu-admission.io/isolate asks for mode hami-core, but vgpu-admission.io/mode "
            "for memory-only; keep one [ConflictingRequest]",
            id="copied-and-isolated",
        ),
        pytest.param(
            GPUSHARE,
            {MODE: "memory-only"},
            'pod: mode "memory-only" is not known; use mig, hami-core or mps, or remove '
            "volcano.sh/vgpu-mode [ModeUnavailable]",
            id="mode-that-volcano-lacks",
        ),
        pytest.param(
            GPUSHARE,
            {OWN_MODE: "MIG"},
            'pod: mode "MIG" is not known; use mig, hami-core or mps, or remove '
            "vgpu-admission.io/mode [ModeUnavailable]",
            id="our-mode-misspelt",
        ),
        pytest.param(
            VOLCANO,
            {NOT: " , "},
            'pod: nvidia.com/nouse-gputype " , " excludes every GPU; name a model, or remove '
            "nvidia.com/nouse-gputype [MalformedRequest]",
            id="filter-without-item",
        ),
    ],
)
def test_an_annotation_that_cannot_be_meant_is_refused(
    limits: Resources, annotations: dict[str, str], message: str
) -> None:
    """Upstream, such a pod waits forever or runs where it must not; here it is refused."""
    (finding,) = findings(box(limits), annotations=annotations)

    assert f"{finding} [{finding.reason}]" == message


@pytest.mark.parametrize(
    "profile", ["1g.5gb", "7g.79gb", "1g.10gb+me", "1g.24gb-me", "1g.6gb+me.all"]
)
def test_every_kind_of_profile_can_be_named(profile: str) -> None:
    """The spelling is that of the driver; whether a board has it is decided later."""
    asked = request(box(VOLCANO), annotations={PROFILE: profile})

    assert asked.profile == profile


def test_filters_are_trimmed_lists() -> None:
    """Blanks around items are dropped and so are empty items, one of which would match all."""
    asked = request(
        box(VOLCANO),
        annotations={
            USE: "A100, h100,",
            "nvidia.com/nouse-gputype": "T4",
            "volcano.sh/vgpu-use-gpuuuid": "GPU-1",
            NOT_UUIDS: ",GPU-2 ,GPU-3",
        },
    )

    assert asked.filters == Filters(
        models=("A100", "h100"),
        not_models=("T4",),
        uuids=("GPU-1",),
        not_uuids=("GPU-2", "GPU-3"),
    )


def test_a_list_has_an_end() -> None:
    """A list as long as an annotation may be does not slow every decision down."""
    uuids = ",".join(f"GPU-{number}" for number in range(MOST_ITEMS + 1))

    (finding,) = findings(box(VOLCANO), annotations={NOT_UUIDS: uuids})

    assert finding.what.endswith("has 257 items")
    assert finding.remedy == "name at most 256"


def test_the_longest_list_is_kept_whole() -> None:
    """The bound itself is allowed."""
    uuids = tuple(f"GPU-{number}" for number in range(MOST_ITEMS))

    asked = request(box(VOLCANO), annotations={NOT_UUIDS: ",".join(uuids)})

    assert asked.filters.not_uuids == uuids


@pytest.mark.parametrize("text", ["", " ", ",", " , ,", "\t", "\u3000,"])
@pytest.mark.parametrize("key", [USE, USE_UUIDS, NOT_UUIDS])
def test_a_blank_list_is_no_filter(key: str, text: str) -> None:
    """Volcano's scheduler binds such a pod to any GPU, so it is not refused here."""
    asked = request(box(VOLCANO), annotations={key: text})

    assert asked.filters == Filters()


def test_all_annotations_are_judged_at_once() -> None:
    """Nobody mends a pod one annotation at a time."""
    found = findings(box(VOLCANO), annotations={MODE: "smi", PROFILE: "?", NOT: ""})

    assert [finding.reason for finding in found] == [
        Reason.MODE_UNAVAILABLE,
        Reason.MALFORMED,
        Reason.MALFORMED,
    ]
    assert {finding.field for finding in found} == {
        f'metadata.annotations["{key}"]' for key in (MODE, PROFILE, NOT)
    }
