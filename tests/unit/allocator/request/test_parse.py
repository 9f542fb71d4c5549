"""A pod's resources become one request, or sentences that say why not."""

import pytest

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.model.decision import Reason
from allocator.model.request import Mode, Stage
from allocator.request.containers import MOST_FINDINGS
from tests.builders.containers import (
    CORES,
    GPU_COUNT,
    GPU_MEM,
    MEMORY,
    NUMBER,
    PERCENT,
    Resources,
    asked,
    box,
    findings,
    only,
    refusal,
    request,
)

GPU_CORES = "aliyun.com/gpu-core.percentage"


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"cpu": "4", "memory": "8Gi"}, id="nothing-of-ours"),
        pytest.param({"nvidia.com/gpu": "1"}, id="another-plugin"),
        pytest.param({NUMBER: "0"}, id="no-gpu"),
        pytest.param({NUMBER: "0", MEMORY: "0", PERCENT: "0", CORES: "0"}, id="all-zero"),
        pytest.param({GPU_MEM: "0"}, id="no-memory"),
        pytest.param({NUMBER: "0", "nvidia.com/gpu": "1"}, id="zero-beside-another-plugin"),
    ],
)
def test_a_pod_may_ask_for_nothing_of_ours(limits: Resources) -> None:
    """Such a pod is none of our business, whatever its annotations say."""
    assert asked(box(limits), annotations={"volcano.sh/vgpu-mode": "smi"}) is None


def test_a_container_without_resources_asks_for_nothing() -> None:
    """Most containers of the world look like this."""
    assert asked(box(None), init=[box(None, name="init")]) is None


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({NUMBER: "2", MEMORY: "3k", CORES: "50"}, (2, 3000, None, 50), id="in-full"),
        pytest.param({NUMBER: "1"}, (1, None, None, 0), id="whole-memory"),
        pytest.param({MEMORY: "3k"}, (1, 3000, None, 0), id="memory-alone"),
        pytest.param({PERCENT: "50"}, (1, None, 50, 0), id="percentage-alone"),
        pytest.param({CORES: "30"}, (1, None, None, 30), id="cores-alone"),
        pytest.param({NUMBER: "1", MEMORY: "0"}, (1, None, None, 0), id="no-memory-named"),
        pytest.param({MEMORY: "3k", PERCENT: "0"}, (1, 3000, None, 0), id="no-percentage-named"),
        pytest.param({GPU_MEM: "4"}, (1, 4096, None, 0), id="gib"),
        pytest.param({GPU_MEM: "4", GPU_CORES: "30"}, (1, 4096, None, 30), id="gib-and-cores"),
        pytest.param({GPU_COUNT: "2"}, (2, None, None, 100), id="whole-gpus"),
        pytest.param({GPU_MEM: "4", NUMBER: "1"}, (1, 4096, None, 0), id="our-slot-beside"),
        pytest.param({GPU_COUNT: "2", NUMBER: "2"}, (2, None, None, 100), id="our-slots-beside"),
    ],
)
def test_what_a_container_asks_for_is_in_canonical_units(
    limits: Resources, expected: tuple[int, int | None, int | None, int]
) -> None:
    """Count, MiB, percent and cores, per GPU, whatever the vocabulary."""
    found = only(limits)

    assert (found.count, found.memory, found.percent, found.cores) == expected


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        pytest.param(
            {MEMORY: "8k", PERCENT: "50"},
            "both vgpu-memory 8000 and vgpu-memory-percentage 50; keep one [ConflictingRequest]",
            id="two-amounts-of-memory",
        ),
        pytest.param(
            {NUMBER: "0", MEMORY: "3k"},
            "vgpu-number 0 asks for no GPU, but vgpu-memory 3000 for one; "
            "ask for vgpu-number 1, or remove volcano.sh/vgpu-memory [ConflictingRequest]",
            id="part-of-no-gpu",
        ),
        pytest.param(
            {NUMBER: "1", PERCENT: "0"},
            "vgpu-memory-percentage 0 is outside 1 to 100; "
            "ask for at least 1, or remove volcano.sh/vgpu-memory-percentage [MalformedRequest]",
            id="gpu-without-memory",
        ),
        pytest.param(
            {GPU_COUNT: "2", GPU_MEM: "4"},
            "both gpu-count 2 and gpu-mem 4; keep one [ConflictingRequest]",
            id="whole-and-part",
        ),
        pytest.param(
            {MEMORY: "3k", GPU_MEM: "4"},
            "both volcano.sh/vgpu-memory and aliyun.com/gpu-mem ask for GPUs; keep one "
            "[ConflictingRequest]",
            id="two-vocabularies",
        ),
        pytest.param(
            {GPU_MEM: "4", NUMBER: "2"},
            "both aliyun.com/gpu-mem and volcano.sh/vgpu-number ask for GPUs; keep one "
            "[ConflictingRequest]",
            id="more-slots-than-asked",
        ),
        pytest.param(
            {GPU_MEM: "0", NUMBER: "1"},
            "both aliyun.com/gpu-mem and volcano.sh/vgpu-number ask for GPUs; keep one "
            "[ConflictingRequest]",
            id="slot-for-nothing",
        ),
        pytest.param(
            {NUMBER: "1", "nvidia.com/mig-1g.5gb": "1"},
            "both volcano.sh/vgpu-number and nvidia.com/mig-1g.5gb ask for GPUs; keep one "
            "[ConflictingRequest]",
            id="another-plugin-too",
        ),
        pytest.param(
            {"volcano.sh/vgpu-memry": "3k", NUMBER: "1"},
            "volcano.sh/vgpu-memry is not a known resource; use volcano.sh/vgpu-memory "
            "[MalformedRequest]",
            id="slip-of-the-pen",
        ),
    ],
)
def test_contradictions_are_refused(limits: Resources, message: str) -> None:
    """What two readers could read differently is never guessed."""
    assert refusal(limits) == f'container "main": {message}'


def test_a_name_like_none_of_ours_lists_what_there_is() -> None:
    """Nothing under our prefixes is passed over in silence."""
    (finding,) = findings(box({"volcano.sh/vgpu-" + "z" * 40: "1"}))

    assert finding.remedy.startswith("use volcano.sh/vgpu-number, volcano.sh/vgpu-memory, ")


def test_requests_must_equal_limits() -> None:
    """The API server would refuse it as well, but cannot say what to do."""
    (finding,) = findings(box({MEMORY: "3k"}, requests={MEMORY: "4k"}))

    assert finding.reason is Reason.CONFLICTING
    assert finding.what == 'vgpu-memory is "3k" in limits and "4k" in requests'
    assert finding.remedy == "leave volcano.sh/vgpu-memory out of requests"


def test_requests_may_repeat_limits_in_other_words() -> None:
    """Numbers are compared, not texts."""
    found = request(box({MEMORY: "3k"}, requests={MEMORY: 3000}))

    assert found.containers[0].memory == 3000


@pytest.mark.parametrize("amount", ["3k", "1", "0"])
@pytest.mark.parametrize("limits", [None, {}, {NUMBER: "1"}, {"cpu": "1"}])
def test_a_request_without_limit_is_refused(limits: Resources | None, amount: str) -> None:
    """As the API server does, whatever the amount: "Limit must be set"."""
    (finding,) = findings(box(limits, requests={MEMORY: amount}))

    assert str(finding) == (
        'container "main": vgpu-memory is in requests only, and the API server wants a limit for '
        "it; set volcano.sh/vgpu-memory in limits"
    )
    assert (finding.reason, finding.field) == (
        Reason.MALFORMED,
        'spec.containers[0].resources.requests["volcano.sh/vgpu-memory"]',
    )


def test_all_kinds_of_containers_are_read_in_the_order_of_the_pod() -> None:
    """Each keeps its index and when it runs; those that do not ask are left out."""
    found = request(
        box({"cpu": "1"}, name="web"),
        box({MEMORY: "3k"}, name="main"),
        init=[
            box({MEMORY: "1k"}, name="fetch"),
            box({MEMORY: "2k"}, name="proxy", restart_policy="Always"),
        ],
    )

    assert [(c.name, c.index, c.stage) for c in found.containers] == [
        ("fetch", 0, Stage.INIT),
        ("proxy", 1, Stage.SIDECAR),
        ("main", 1, Stage.APP),
    ]


def test_all_findings_of_a_pod_are_told_in_its_order() -> None:
    """Init containers, containers, annotations; each with the path to mend."""
    found = findings(
        box({NUMBER: "1"}, name="good"),
        box({CORES: "140", MEMORY: "8Gi"}, name="bad"),
        init=[box({NUMBER: "99"}, name="first")],
        annotations={"volcano.sh/vgpu-mode": "smi"},
    )

    assert [(finding.place, finding.field) for finding in found] == [
        ('init container "first"', f'spec.initContainers[0].resources.limits["{NUMBER}"]'),
        ('container "bad"', f'spec.containers[1].resources.limits["{CORES}"]'),
        ('container "bad"', f'spec.containers[1].resources.limits["{MEMORY}"]'),
        ("pod", 'metadata.annotations["volcano.sh/vgpu-mode"]'),
    ]


def test_a_pod_speaks_one_vocabulary() -> None:
    """One pod has one mode, and vocabularies differ in which they offer."""
    (finding,) = findings(box({NUMBER: "1"}, name="one"), box({GPU_MEM: "4"}, name="other"))

    assert finding.reason is Reason.CONFLICTING
    assert str(finding) == (
        f'container "other": both {NUMBER} and {GPU_MEM} ask for GPUs; keep one'
    )


def test_findings_have_an_end() -> None:
    """Names by the ten thousand cost no more than a few, and so do containers."""
    slips = {f"volcano.sh/vgpu-{number}": "1" for number in range(20_000)}

    by_name = findings(box(slips))
    by_container = findings(*(box({CORES: "140"}, name=f"c{number}") for number in range(500)))

    assert len(by_name) == len(by_container) == MOST_FINDINGS


def test_what_strangers_wrote_cannot_break_a_sentence() -> None:
    """Names and values are escaped and cut before they are repeated."""
    found = findings(box({"volcano.sh/vgpu-\n" + "x" * 999: "\x1b" * 999}, name="a\nb" * 99))

    assert all(len(str(finding)) < 500 for finding in found)
    assert all(str(finding).isprintable() and finding.field.isprintable() for finding in found)


def test_our_own_slot_beside_gpushare_changes_nothing() -> None:
    """A pod that we rewrote reads as it did before, so that a second pass changes nothing."""
    before = request(box({GPU_MEM: "4"}))
    after = request(box({GPU_MEM: "4", NUMBER: "1"}, requests={GPU_MEM: "4", NUMBER: "1"}))

    assert before == after
    assert after.vocabulary == "gpushare"
    assert after.mode is Mode.MEMORY_ONLY


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("", "is not a number of GPUs from 1 to 65536"),
        ("0", "is not a number of GPUs"),
        ("-64", "is not a number of GPUs"),
        ("64.0", "is not a number of GPUs"),
        ("6e1", "is not a number of GPUs"),
        ("0x40", "is not a number of GPUs"),
        ("64 ", "is not a number of GPUs"),
        ("٦٤", "is not a number of GPUs"),
        ("9" * 5000, "is not a number of GPUs"),
        ("65537", "is not a number of GPUs"),
        ("64\n", "is not a number of GPUs"),
        ("\x1b[2J", "is not a number of GPUs"),
        ("all", 'such as "64"'),
        ("12", 'is not a multiple of the 8 GPUs of this pod; give a multiple of 8, such as "16"'),
        ("1", 'such as "8"'),
    ],
)
def test_a_size_of_a_group_that_no_group_has_is_refused(size: str, said: str) -> None:
    """The sentence is short, safe to print, and names a size that would do."""
    text = str(findings(box({NUMBER: "8"}), annotations={GROUP_SIZE_KEY: size})[0])
    assert said in text
    assert text.isprintable()
    assert len(text) < 400


def test_a_size_of_a_group_changes_nothing_else() -> None:
    """The request is the same with it and without."""
    asking = box({NUMBER: "8"})
    assert request(asking, annotations={GROUP_SIZE_KEY: "64"}) == request(asking)
