"""A vocabulary that the settings leave out: read by nobody here, and left to other plugins."""

import pytest

from allocator.catalog.vocabularies import VOLCANO
from allocator.config.device_config import DeviceConfig, configured_vocabularies
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
