"""The first two lines: what is missing and what would help, in every state a pod can be in."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from allocator.config.device_config import (
    DeviceConfig,
    configured_vocabularies,
    vocabularies_named_in_vain,
)
from allocator.config.settings import settings_of
from allocator.report.terminal_lines import HeadingLine, Tone, WrappedLine, plain_text
from allocator.report.terminal_lines import printed_lines as printed
from console.cluster.event import EventView, events_of, latest
from console.cluster.pod import PodState, PodView, pod_of
from console.cluster.snapshot import Configuration, cluster_view
from console.explain.why import PodFacts, PodWhy, why
from console.explain.why_text import lines
from tests.builders.pods import MEMORY, NUMBER, Json, container, pod, received
from tests.unit.console.sites import NOW, site, stored

PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
CRASH = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
STARTED: Json = {"running": {}}


def asking(memory: int = 3000) -> Json:
    return pod(container(limits={NUMBER: 1, MEMORY: memory}))


def with_status(found: PodView, **status: object) -> PodView:
    document = msgspec.to_builtins(found) | {"status": status}
    return pod_of(document)


def with_states(*states: Json, phase: str = "Pending", name: str = "train-0") -> PodView:
    statuses = [{"name": f"c{number}", "state": state} for number, state in enumerate(states)]
    found = stored(name, asking(), node="gpu-a")
    return with_status(found, phase=phase, containerStatuses=statuses)


def explained(found: PodView, events: Sequence[EventView] = ()) -> PodWhy:
    return why(PodFacts(pod=found, site=site(), events=tuple(events)))


def text(found: PodWhy) -> list[str]:
    return list(map(plain_text, printed(lines(found), 200)))


@pytest.mark.parametrize(
    ("states", "phase", "missing", "remedy"),
    [
        pytest.param(
            [PULL],
            "Pending",
            'container "c0" does not start: ImagePullBackOff: no such image',
            "correct the name of the image, or the pull secret of the pod",
            id="no-image",
        ),
        pytest.param(
            [STARTED, CRASH],
            "Running",
            'container "c1" does not start: CrashLoopBackOff: back-off 5m0s',
            "read its last words with: kubectl logs --previous",
            id="crash-loop-of-a-running-pod",
        ),
        pytest.param(
            [{"waiting": {"reason": "CreateContainerConfigError"}}],
            "Pending",
            'container "c0" does not start: CreateContainerConfigError',
            "the message names the cause; kubectl describe pod shows what kubelet tried",
            id="device-plugin-refuses",
        ),
    ],
)
def test_a_container_that_cannot_start_is_failing(
    states: Sequence[Json], phase: str, *, missing: str, remedy: str
) -> None:
    """It is not bound and well, whatever its phase; nothing of the answer is green."""
    found = explained(with_states(*states, phase=phase))

    assert found.state is PodState.FAILING
    assert text(found)[:2] == [f"FAILING   {missing}", f"try       {remedy}"]
    tones = {line.tone for line in lines(found) if isinstance(line, WrappedLine | HeadingLine)}
    assert Tone.GOOD not in tones


@pytest.mark.parametrize("states", [[CREATING], [{"waiting": {}}], [{}], [STARTED, CREATING]])
def test_a_container_that_is_being_created_is_not_failing(states: Sequence[Json]) -> None:
    """Kubelet is at work on it."""
    assert explained(with_states(*states)).state is PodState.BOUND


def test_a_failed_pod_says_why() -> None:
    """What kubelet did not admit failed for good, which only its status tells."""
    found = stored("p", asking(), node="gpu-a", phase="Failed")
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}

    first, second, *_ = text(explained(with_status(found, **status)))

    assert first == "ENDED     it failed: UnexpectedAdmissionError: no devices"
    assert second.startswith("try       delete it")


def unscheduled(name: str = "volcano", *, minutes: int = 5, scheduler: str = "") -> PodView:
    """Return a pod on which no scheduler has left a condition."""
    found = with_status(stored(name, asking(), minutes=minutes), phase="Pending")
    spec = msgspec.structs.replace(found.spec, scheduler_name=scheduler or name)
    return msgspec.structs.replace(found, spec=spec)


def test_a_scheduler_that_does_not_exist_is_named() -> None:
    """Nobody else would say so: there is no Event and no condition."""
    first, second, *_ = text(explained(unscheduled()))

    assert first == (
        'WAITING   schedulerName "volcano" seems to be served by nobody: no scheduler has looked at'
        " the pod for 5m"
    )
    assert second == (
        'try       start a scheduler that serves "volcano", or set schedulerName to'
        " default-scheduler"
    )


def test_the_default_scheduler_is_not_replaced_by_itself() -> None:
    """It may not run at all."""
    found = unscheduled("p", scheduler="default-scheduler")

    assert (
        text(explained(found))[1] == 'try       start a scheduler that serves "default-scheduler"'
    )


@pytest.mark.parametrize(
    ("sign", "event"),
    [
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled"}]}, None),
        ({"phase": "Pending"}, {"reason": "FailedScheduling"}),
        ({"phase": "Pending"}, {"reason": "Odd", "reportingComponent": "volcano"}),
    ],
)
def test_a_scheduler_that_left_a_sign_is_there(sign: Json, event: Json | None) -> None:
    """A condition or an Event of it is enough."""
    found = explained(with_status(unscheduled(), **sign), events_of([event] if event else []))

    assert "served by nobody" not in text(found)[0]


def test_a_new_pod_is_given_time() -> None:
    """A scheduler may be busy."""
    found = unscheduled(minutes=0)

    assert "served by nobody" not in text(explained(found))[0]
    later = why(PodFacts(pod=found, site=cluster_view([], [], now=NOW + timedelta(seconds=30))))
    assert "served by nobody" in text(later)[0]


def test_who_may_not_read_ledgers_is_told_the_role() -> None:
    """The one thing that an administrator would have to grant."""
    blind = cluster_view(None, None, now=NOW)

    first, second, *_ = text(why(PodFacts(pod=stored("p", asking()), site=blind)))

    assert first == "WAITING   what nodes lack is unknown: you may not read GPUNodes"
    assert second == "try       ask an administrator for the ClusterRole vgpu-reader"


def test_a_request_that_cannot_be_read_says_what_is_accepted() -> None:
    """The finding is the headline, with its remedy."""
    bad = pod_of(
        pod(container(limits={NUMBER: 1, MEMORY: "8Gi"}))
        | {"metadata": {"name": "p", "namespace": "team-a", "uid": "p"}}
    )

    first, second, *_ = text(explained(bad))

    assert "8Gi" in first
    assert second.startswith("try       ")
    assert not first.startswith('WAITING   container "main"')


def test_several_containers_are_told_apart() -> None:
    """Only where there is one is its name left out."""
    limits = {NUMBER: 1, MEMORY: 90000}
    two = pod(container(limits=limits), container("side"))
    found = stored("p", asking(), minutes=5)
    written = msgspec.structs.replace(
        found, spec=msgspec.structs.replace(found.spec, containers=pod_of(two).spec.containers)
    )

    assert text(explained(written))[0].startswith('WAITING   container "main": ')


def said(message: str, minute: int, count: int, *, reporter: str = "default-scheduler") -> Json:
    return {
        "reason": "FailedScheduling",
        "message": message,
        "source": {"component": reporter},
        "count": count,
        "lastTimestamp": f"2026-11-21T12:{minute}:00Z",
    }


def test_equal_sentences_are_one() -> None:
    """With the sum of their counts and the latest time; others stay apart."""
    found = events_of(
        [
            said("0/3 nodes are available.", 10, 4),
            said("0/3  nodes are available", 30, 2),
            said("0/3 nodes are available.", 20, 1, reporter="volcano"),
        ]
    )

    assert [(event.reporter, event.times, event.last_time.minute) for event in found] == [
        ("default-scheduler", 6, 30),
        ("volcano", 1, 20),
    ]
    assert latest(found) == found


def test_a_pod_in_a_vocabulary_left_out_is_told_so() -> None:
    """It asks for GPUs, only not by names that this cluster serves."""
    settings = settings_of("vocabularies: [volcano]")
    served = configured_vocabularies(settings, DeviceConfig())
    narrow = replace(site(), configuration=Configuration(settings=settings, vocabularies=served))
    document = received(pod(container(limits={"aliyun.com/gpu-mem": 2})))

    first, second, *_ = text(why(PodFacts(pod=pod_of(document), site=narrow, events=())))

    assert first == (
        'WAITING   container "main": aliyun.com/gpu-mem belongs to the vocabulary gpushare, which'
        " this cluster does not serve"
    )
    assert "volcano.sh/vgpu-memory, or ask the administrators to add gpushare" in second


def test_a_pod_in_a_vocabulary_that_is_named_in_vain_is_told_so() -> None:
    """It names nvidia.com/gpu, which NVIDIA's plugin may have on nodes without our agent."""
    settings, devices = (
        settings_of("vocabularies: [volcano, hami]"),
        DeviceConfig(memory_name="nvidia.com/gpumem"),
    )
    configuration = Configuration(
        settings=settings,
        vocabularies=configured_vocabularies(settings, devices),
        lost=vocabularies_named_in_vain(settings, devices),
    )
    narrow = replace(site(), configuration=configuration)
    document = received(pod(container(limits={"nvidia.com/gpu": 1})))

    first, second, *_ = text(why(PodFacts(pod=pod_of(document), site=narrow, events=())))

    assert first.startswith('WAITING   container "main": nvidia.com/gpu belongs to the vocabulary')
    assert "nvidia.com/gpumem is Volcano's resourceMemoryName here" in first
    assert "rename nvidia.com/gpumem in one of the two" in second


def test_a_pod_that_asks_for_no_gpu_waits_for_its_scheduler() -> None:
    """Nothing is reserved for it."""
    found = stored("web", pod(container()))

    first, *_ = text(explained(found))

    assert first.startswith("WAITING   it asks for no vGPU resources")
