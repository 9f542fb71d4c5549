"""Use against promise: what is read of an answer of Prometheus, and by whom."""

import json
from collections.abc import Callable

import pytest

from console.get.listing import OutputFormat, listing_lines
from console.history.use_rows import container_use_listing, gpu_use_listing
from console.records.query import EVERYTHING, NOTHING, Scope
from console.use.figures import (
    ContainerUse,
    GpuUse,
    container_question,
    containers_in_use,
    gpu_question,
    gpus_in_use,
)

NOW = 1_790_000_030.0
GIB = 1024**3
OF_A = Scope(namespaces=frozenset({"team-a"}))


def sample(name: str, value: object, **labels: str) -> dict[str, object]:
    return {"metric": {"__name__": name, **labels}, "value": [NOW, str(value)]}


def held(namespace: str, pod: str) -> list[dict[str, object]]:
    labels = {
        "namespace": namespace,
        "pod": pod,
        "container": "main",
        "device": "0",
        "instance": "gpu-1",
    }
    return [
        sample("vgpu_container_memory_limit_bytes", 8 * GIB, **labels),
        sample("vgpu_container_memory_used_bytes", 3 * GIB, **labels),
        sample("vgpu_container_cores_used_ratio", 0.375, **labels),
        sample("vgpu_container_last_kernel_timestamp_seconds", NOW - 5400, **labels),
    ]


WAITING = sample(
    "vgpu_container_memory_limit_bytes",
    4 * GIB,
    namespace="team-b",
    pod="train-1",
    container="main",
    device="1",
    instance="gpu-1",
)
ANSWER = {"result": [*held("team-b", "eval-0"), *held("team-a", "train-0"), WAITING]}
DEVICE = {"node": "gpu-1", "device": "0"}
GPUS = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [
            sample("vgpu_device_info", 1, **DEVICE, model="NVIDIA A30", mode="mig", uuid="u"),
            sample("vgpu_device_memory_bytes", 24 * GIB, **DEVICE),
            sample("vgpu_device_memory_promised_bytes", 12 * GIB, **DEVICE),
            sample("vgpu_device_memory_used_bytes", 6 * GIB, **DEVICE),
            sample("vgpu_device_memory_bytes", 16 * GIB, node="gpu-1", device="1"),
        ],
    },
}


def test_figures_of_a_container_are_joined() -> None:
    """What was not measured is unknown, not 0."""
    first, second, third = containers_in_use(ANSWER, EVERYTHING, NOW)

    assert first == ContainerUse(
        namespace="team-a",
        pod="train-0",
        container="main",
        node="gpu-1",
        device="0",
        promised_mib=8192,
        used_mib=3072,
        cores_used_percent=37.5,
        idle_seconds=5400.0,
    )
    assert second.namespace == "team-b"
    assert (third.promised_mib, third.used_mib, third.idle_seconds) == (4096, None, None)


def test_figures_of_a_gpu_are_joined() -> None:
    """A GPU in MIG mode has none of its compute."""
    first, second = gpus_in_use(GPUS, EVERYTHING)

    assert first == GpuUse(
        node="gpu-1",
        device="0",
        model="NVIDIA A30",
        mode="mig",
        memory_mib=24576,
        promised_mib=12288,
        used_mib=6144,
    )
    assert (second.memory_mib, second.model, second.promised_mib) == (16384, "", None)


def test_nobody_sees_what_others_use() -> None:
    """Neither in the question nor, whatever is answered, in the answer."""
    assert container_question(OF_A).endswith(', namespace=~"team-a"}')
    assert container_question(NOTHING).endswith(', namespace=~"-"}')
    assert "namespace" not in container_question(EVERYTHING).replace("namespaces", "")
    assert {use.namespace for use in containers_in_use(ANSWER, OF_A, NOW)} == {"team-a"}
    assert containers_in_use(ANSWER, NOTHING, NOW) == ()
    assert gpu_question(OF_A) is None
    assert gpus_in_use(GPUS, OF_A) == ()


def test_a_name_that_is_none_is_no_part_of_a_pattern() -> None:
    """What could end the quotation, or match everything, is left out; a dot is a dot."""
    scope = Scope(namespaces=frozenset({'a"} or up{', ".*", "team.a", "a|b"}))

    assert container_question(scope).endswith(', namespace=~"team[.]a"}')


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "no",
        [],
        {},
        {"result": 7},
        {"result": [None, {}, {"metric": 1}, {"metric": {}, "value": 3}]},
        {"result": [{"metric": {}, "value": [1, "NaN"]}, {"metric": {}, "value": [1, "x"]}]},
    ],
)
def test_a_malformed_answer_has_no_figures(answer: object) -> None:
    """Prometheus may be a proxy's login page."""
    assert containers_in_use(answer, EVERYTHING, NOW) == ()
    assert gpus_in_use(answer, EVERYTHING) == ()


def test_figures_are_shown_as_reviewed(golden: Callable[[str, str], str]) -> None:
    """Both tables fit 80 columns."""
    containers = container_use_listing(containers_in_use(ANSWER, EVERYTHING, NOW), spaces=True)
    gpus = gpu_use_listing(gpus_in_use(GPUS, EVERYTHING))

    for name, listing in (("pods", containers), ("gpus", gpus)):
        shown = "".join(f"{line}\n" for line in listing_lines(listing, OutputFormat.TABLE))
        (document,) = listing_lines(listing, OutputFormat.JSON)
        assert shown == golden(f"kubectl-top-{name}.txt", shown)
        assert max(map(len, shown.splitlines())) <= 80
        assert f"{document}\n" == golden(f"kubectl-top-{name}.json", f"{document}\n")
        assert "nan" not in document.lower()
        assert json.loads(document)["items"]
