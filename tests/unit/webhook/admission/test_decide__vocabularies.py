"""A vocabulary that the settings leave out: read by nobody here, and left to other plugins."""

from typing import Any

import pytest

from allocator.catalog.vocabularies import CATALOGUE, VOLCANO
from allocator.config.device_config import (
    DeviceConfig,
    configured_vocabularies,
    vocabularies_named_in_vain,
)
from allocator.config.settings import settings_of
from allocator.model.decision import Reason
from tests.builders.containers import GPU_COUNT
from tests.builders.model import nodes_of, snapshot
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
    variables,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import GpusHidden, Refused, Rewritten, Untouched

SETTINGS = settings_of("vocabularies: [volcano]")
SERVED = configured_vocabularies(SETTINGS, DeviceConfig())
ONLY_VOLCANO = AdmissionContext(
    settings=SETTINGS, snapshot=snapshot(nodes_of(2)), vocabularies=SERVED, host_paths=True
)
SENTENCE = (
    'container "main": aliyun.com/gpu-mem belongs to the vocabulary gpushare, which this cluster'
    " does not serve; ask by the names of another vocabulary, such as volcano.sh/vgpu-memory, or"
    " ask the administrators to add gpushare to the setting vocabularies"
)


def test_only_what_is_named_is_served() -> None:
    """The default names all of them."""
    everything = configured_vocabularies(settings_of(""), DeviceConfig())

    assert SERVED == (VOLCANO,)
    names = [vocabulary.name for vocabulary in everything]
    assert names == ["volcano", "gpushare", "metax-gpu", "metax-sgpu"]


@pytest.mark.parametrize("name", [GPU_MEM, GPU_COUNT, "aliyun.com/gpu-core.percentage"])
def test_a_pod_in_another_vocabulary_passes_with_a_warning(name: str) -> None:
    """Its GPU may come from that vocabulary's own plugin, so it is not hidden."""
    outcome = decided(pod(container(limits={name: 2})), ONLY_VOLCANO)

    assert isinstance(outcome, Untouched)
    assert outcome.warnings == (SENTENCE.replace(GPU_MEM, name),)


def test_its_other_containers_see_no_gpu() -> None:
    """Each vocabulary is named once, whatever number of containers ask in it."""
    shares = [container(limits={GPU_MEM: 2}), container("second", limits={GPU_MEM: 2})]
    found = pod(container("web"), *shares, container("third", limits={GPU_MEM: "0"}))

    outcome = decided(found, ONLY_VOLCANO)
    given = admitted(received(found), ONLY_VOLCANO)

    assert isinstance(outcome, GpusHidden)
    assert outcome.warnings == (SENTENCE,)
    hidden = {"NVIDIA_VISIBLE_DEVICES": "void"}
    seen = [variables(given, name) for name in ("web", "main", "second", "third")]
    assert seen == [hidden, {}, {}, hidden]


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({NUMBER: 1, GPU_MEM: 2}, id="both"),
        pytest.param({NUMBER: 1, MEMORY: 3000, GPU_MEM: "2k"}, id="with-memory"),
    ],
)
def test_who_asks_in_both_is_refused(limits: Json) -> None:
    """So is, at its bind, a pod of gpushare that admission gave a slot before."""
    outcome = decided(pod(container(limits=limits)), ONLY_VOLCANO)

    assert isinstance(outcome, Refused)
    finding = outcome.findings.first
    assert (finding.reason, str(finding)) == (Reason.UNSERVED, SENTENCE)


def test_an_amount_of_zero_asks_for_nothing() -> None:
    """Some tools write every resource that they know."""
    found = pod(container(limits={NUMBER: 1, GPU_MEM: "0"}), annotations={MODE: "hami-core"})

    outcome = decided(found, ONLY_VOLCANO)

    assert isinstance(outcome, Rewritten)
    assert not outcome.warnings


def in_vain(text: str = "vocabularies: [volcano, hami]", **renamed: Any) -> AdmissionContext:  # noqa: ANN401 -- fields of DeviceConfig
    """Return what decisions rest on where Volcano's resources are *renamed* to names of HAMi's."""
    settings, devices = settings_of(text), DeviceConfig(**renamed)
    return AdmissionContext(
        settings=settings,
        snapshot=snapshot(nodes_of(2)),
        vocabularies=configured_vocabularies(settings, devices),
        lost=vocabularies_named_in_vain(settings, devices),
        host_paths=True,
    )


EVERY = ", ".join(vocabulary.name for vocabulary in CATALOGUE)
TAKEN = in_vain(memory_name="nvidia.com/gpumem")
LOST = (
    "{} belongs to the vocabulary hami, which this cluster does not serve, because"
    " nvidia.com/gpumem is Volcano's resourceMemoryName here; ask by the names of another"
    " vocabulary, such as volcano.sh/vgpu-number, or ask the administrators to rename"
    " nvidia.com/gpumem in one of the two"
)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
        "nvidia.com/priority",
    ],
)
def test_a_pod_in_a_vocabulary_that_is_named_in_vain_is_warned(name: str) -> None:
    """It would wait for ever, and nobody would know for what; another plugin may serve it yet."""
    outcome = decided(pod(container(limits={name: 1})), TAKEN)

    assert isinstance(outcome, Untouched | GpusHidden)
    assert outcome.warnings == (f'container "main": {LOST.format(name)}',)


@pytest.mark.parametrize(
    ("limits", "context", "warned"),
    [
        pytest.param(
            {"nvidia.com/gpu": 1},
            in_vain(f"vocabularies: [{EVERY}]", memory_name="nvidia.com/gpumem"),
            "nvidia.com/gpu",
            id="all-others-are-served",
        ),
        pytest.param({"nvidia.com/gpu": "0"}, TAKEN, None, id="zero"),
        pytest.param({"nvidia.com/gpus": 1}, TAKEN, None, id="longer-name"),
        pytest.param({"nvidia.com/GPU": 1}, TAKEN, None, id="other-case"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1}, TAKEN, None, id="of-nvidias-plugin"),
        pytest.param({"cpu": 1}, TAKEN, None, id="no-gpu"),
        pytest.param({"nvidia.com/gpu": "many"}, TAKEN, "nvidia.com/gpu", id="no-number"),
        pytest.param({"nvidia.com/gpu": -1}, TAKEN, "nvidia.com/gpu", id="negative"),
        pytest.param({"nvidia.com/gpu": "1" * 5000}, TAKEN, "nvidia.com/gpu", id="huge"),
        pytest.param({"nvidia.com/gpu": ""}, TAKEN, "nvidia.com/gpu", id="empty"),
        pytest.param({"nvidia.com/gpu": "\x1b[31m"}, TAKEN, "nvidia.com/gpu", id="control"),
        pytest.param(
            {"nvidia.com/gpu": 1}, in_vain("vocabularies: [volcano]"), None, id="not-named-at-all"
        ),
        pytest.param(
            {"example.com/part": 1},
            in_vain(
                "{vocabularies: [volcano, hami], hami: {resourceCoreName: example.com/part}}",
                memory_name="nvidia.com/gpumem",
            ),
            "example.com/part",
            id="renamed",
        ),
        pytest.param(
            {f"nvidia.com/gpucores-{number}": 1 for number in range(60)} | {"nvidia.com/gpu": 1},
            TAKEN,
            "",
            id="many-names",
        ),
    ],
)
def test_one_sentence_for_what_nobody_reads(
    limits: Json, context: AdmissionContext, warned: str | None
) -> None:
    """The configured names count, whatever the amounts are; other resources are none of ours."""
    outcome = decided(pod(container(limits=limits)), context)

    assert isinstance(outcome, Untouched | GpusHidden)
    assert len(outcome.warnings) == (warned is not None)
    assert all(f'container "main": {warned}' in warning for warning in outcome.warnings)
    assert all(warning.isprintable() for warning in outcome.warnings)


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"]
)
def test_who_asks_in_volcanos_words_and_in_unread_ones_is_refused(name: str) -> None:
    """The rest would be dropped: here the memory is Volcano's, and HAMi's user means both."""
    outcome = decided(pod(container(limits={"nvidia.com/gpumem": 3000, name: 1})), TAKEN)

    assert isinstance(outcome, Refused)
    finding = outcome.findings.first
    assert finding.reason is Reason.UNSERVED
    assert name in str(finding)


def test_a_neighbour_that_is_not_read_refuses_nobody() -> None:
    """A second container may get its GPU from another plugin, as where nobody named hami."""
    both = pod(
        container(limits={NUMBER: 1}), container("second", limits={"nvidia.com/priority": 0})
    )

    assert isinstance(decided(both, TAKEN), Rewritten)
    assert isinstance(decided(both, in_vain("vocabularies: [volcano]")), Rewritten)
