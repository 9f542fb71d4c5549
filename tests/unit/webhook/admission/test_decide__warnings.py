"""What a person is warned of who creates a pod that is let in."""

from typing import Any

import pytest
from msgspec.structs import replace

from allocator.catalog.vocabularies import VOLCANO, configure_vocabulary
from allocator.config.settings import SchedulerName, Settings
from allocator.model.request import Mode
from tests.builders.model import A100_80, nodes_of, snapshot
from tests.builders.pods import (
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    Json,
    admitted,
    container,
    decided,
    pod,
    received,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.messages import LONGEST_WARNING, warnings
from webhook.admission.outcome import Refused, Rewritten
from webhook.admission.rewrite import OWN_SCHEDULER

OWN = "vgpu-admission.io/"
SOFT = {MODE: "hami-core"}
CUT = snapshot(nodes_of(2, A100_80, mode=Mode.MIG), nodes_of(2, A100_80, name="n1"))
CLAIMS = [{"name": "nic", "resourceClaimTemplateName": "nics"}]
PINNED = (
    "pod: its resourceClaims keep it on the first node that its scheduler tries, even if no GPU is "
    "free there; use a scheduler that asks our extender, or remove resourceClaims"
)


def around(settings: Settings | None = None, *, extender: bool = False) -> AdmissionContext:
    return AdmissionContext(
        settings=settings or Settings(), snapshot=CUT, host_paths=True, extender=extender
    )


def told(written: Json, context: AdmissionContext | None = None) -> tuple[str, ...]:
    outcome = decided(written, context or around())
    assert isinstance(outcome, Rewritten), outcome
    assert warnings(outcome.warnings) == [f"vgpu: {text}" for text in outcome.warnings]
    return outcome.warnings


def asking(limits: Json, annotations: dict[str, str] | None = None, **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    return pod(container(limits=limits), annotations=annotations, **spec)


def test_a_size_in_the_name_of_a_profile_is_said_to_miss_it() -> None:
    """In MiB or in GiB, as it was asked for; the number in the sentence is enough."""
    (mib,) = told(asking({NUMBER: 1, MEMORY: 10240}))
    gib = configure_vocabulary(VOLCANO, memory_factor=1024)
    (larger,) = told(asking({NUMBER: 1, MEMORY: 10}), replace(around(), vocabularies=(gib,)))

    assert mib == (
        'container "main": 10240 MiB on one GPU need 2g.20gb of A100-SXM4-80GB in mode mig, '
        "because 1g.10gb has 9728 MiB; ask for at most 9728 to get 1g.10gb"
    )
    assert larger == (
        'container "main": 10 GiB on one GPU need 2g.20gb of A100-SXM4-80GB in mode mig, '
        "because 1g.10gb has 9 GiB; ask for at most 9 to get 1g.10gb"
    )
    assert told(asking({NUMBER: 1, MEMORY: 9728})) == ()


def test_who_cannot_become_mig_is_not_told_of_profiles() -> None:
    """A share in software is as large as it was asked for."""
    assert told(asking({NUMBER: 1, MEMORY: 10240}, SOFT)) == ()
    assert told(asking({GPU_MEM: 10})) == ()


@pytest.mark.parametrize(
    ("scheduler", "policy", "extender", "warned"),
    [
        pytest.param(None, SchedulerName.KEEP, False, True, id="default"),
        pytest.param(None, SchedulerName.KEEP, True, False, id="default-asks"),
        pytest.param(None, SchedulerName.SET, False, False, id="set-to-ours"),
        pytest.param("volcano", SchedulerName.SET, True, True, id="vc-scheduler-does-not-ask"),
        pytest.param(OWN_SCHEDULER, SchedulerName.KEEP, False, False, id="ours"),
    ],
)
def test_a_claim_that_pins_a_pod_is_told(
    scheduler: str | None, policy: SchedulerName, *, extender: bool, warned: bool
) -> None:
    """The claim's allocation outlives a refused bind, so that the pod is bound there again."""
    spec = {} if scheduler is None else {"schedulerName": scheduler}
    written = asking({NUMBER: 1, MEMORY: 3000}, SOFT, resourceClaims=CLAIMS, **spec)
    context = around(Settings(scheduler_name=policy), extender=extender)

    assert (PINNED in told(written, context)) is warned
    assert PINNED not in told(asking({NUMBER: 1, MEMORY: 3000}, SOFT, **spec), context)
    assert PINNED not in told(
        asking({NUMBER: 1, MEMORY: 3000}, SOFT, resourceClaims=[], **spec), context
    )


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("volcano.sh/vgpu-mod", MODE),
        ("volcano.sh/vgpu_mode", MODE),
        ("volcano.sh/vgpu-Mode", MODE),
        ("nvidia.com/use-gputypes", "nvidia.com/use-gputype"),
        ("nvidia.com/no-use-gputype", "nvidia.com/nouse-gputype"),
        ("volcano.sh/vgpu-use-gpuuid", "volcano.sh/vgpu-use-gpuuuid"),
        ("vgpu-admission/mig-profile", f"{OWN}mig-profile"),
        ("vgpu-admissions.io/gpu-policy", f"{OWN}gpu-policy"),
        (f"{OWN}mode", MODE),
    ],
)
def test_a_misspelt_key_gets_the_right_one(key: str, right: str) -> None:
    """Whoever wrote it believes that it counts."""
    written = asking({NUMBER: 1, MEMORY: 3000}, {key: "mig"})

    assert f"pod: annotation {key} is not read; use {right}" in told(written)


@pytest.mark.parametrize(
    ("key", "right"),
    [("mod", "mode"), ("mig-profil", "mig-profile"), ("nodepolicy", "node-policy")],
)
def test_a_misspelt_key_of_ours_is_refused_by_the_right_one(key: str, right: str) -> None:
    """Nobody but us may write below our prefix, and the right key is what helps."""
    outcome = decided(asking({GPU_MEM: 2}, {f"{OWN}{key}": "mig"}), around())

    assert isinstance(outcome, Refused)
    assert str(outcome.findings.first) == (
        f"pod: annotation {OWN}{key} is reserved: nobody may write it; use {OWN}{right}, "
        "or remove it"
    )


def test_other_peoples_keys_are_left_alone() -> None:
    """Annotations of other tools, and those that admission wrote itself, are no mistakes."""
    others = {
        "nvidia.com/gpu.product": "A100",
        "hami.io/gpu-scheduler-policy": "spread",
        "volcano.sh/vgpu-podgroup-policy": "spread",
        "example.com/gpu": "1",
    }
    once = admitted(received(asking({NUMBER: 1, MEMORY: 3000}, others)), around())
    volcano = asking({NUMBER: 1, MEMORY: 3000}, schedulerName="volcano")

    assert told(asking({NUMBER: 1, MEMORY: 3000}, others)) == told(once) == ()
    assert told(admitted(received(volcano), around())) == ()


def test_a_pod_of_thousands_of_keys_is_answered_in_few_lines() -> None:
    """Both ways are bounded: warnings by number, comparisons by keys."""
    near = {f"volcano.sh/vgpu-mode{i}": "mig" for i in range(4000)}
    below = {f"{OWN}mode{i}": "mig" for i in range(4000)}

    warned = told(asking({NUMBER: 1, MEMORY: 3000}, near))
    refused = decided(asking({NUMBER: 1, MEMORY: 3000}, below), around())

    assert len(warned) == 4
    assert isinstance(refused, Refused)
    told_right = [f for f in refused.findings.all if f.remedy.startswith("use ")]
    assert len(told_right) == 16


@pytest.mark.parametrize(
    "key",
    [
        "volcano.sh/vgpu-mode" + "e" * 230,
        "volcano.sh/vgpu-mode\n",
        "volcano.sh/vgpu-mod\u202e",
        "gpu",
        "/gpu",
        "volcano.sh/vgpu-mod\x00",
        "gpu" * 5000,
        "\U0001f600gpu",
        'volcano.sh/vgpu-mod"',
        "volcano.sh//vgpu-mode",
    ],
)
def test_a_hostile_key_makes_no_hostile_warning(key: str) -> None:
    """What is shown is short and printable."""
    for text in told(asking({NUMBER: 1, MEMORY: 3000}, {key: "x"})):
        assert len(text) < LONGEST_WARNING
        assert text.isprintable()


def test_the_digest_tells_mistakes_in_annotations_apart() -> None:
    """Two mistakes are two decisions in the log; a retry of the same one is one."""
    digests = []
    for text in ("mpi", "mpi", "smi", "mpi "):
        outcome = decided(asking({NUMBER: 1}, {MODE: text, "other": text}), around())
        assert isinstance(outcome, Refused)
        digests.append(outcome.digest)

    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_of_a_long_list_the_wrong_part_is_shown() -> None:
    """What is cut is not where the mistake is."""
    policy = "numa,topology-aware," * 10 + "mutx"
    outcome = decided(asking({NUMBER: 1}, {"hami.io/gpu-scheduler-policy": policy}), around())

    assert isinstance(outcome, Refused)
    assert '"mutx" is not a policy' in str(outcome.findings.first)
