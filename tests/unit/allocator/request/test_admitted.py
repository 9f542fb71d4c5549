"""What admission wrote on a pod is read alike by the bind hook, the extender and the console."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.config.settings import Settings
from allocator.ledger.assign import PodClaim
from allocator.model.decision import ModeSource
from allocator.model.request import Mode, PodRequest
from allocator.report.feasibility import FeasibilityVerdict
from allocator.request.admitted import admission_marks, admitted_request, earlier_pass
from console.cluster.pod import pod_of
from console.cluster.snapshot import ClusterView, cluster_view
from console.explain.why import PodFacts, PodWhy, why
from tests.builders.bindings import binding, bound, live
from tests.builders.gpunodes import gpu_node
from tests.builders.model import A100_40, T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, MODE, NUMBER, Json, container, pod, received
from tests.unit.console.sites import NOW, machine
from webhook.admission.context import AdmissionContext
from webhook.binding.decide import BindRequest, judge
from webhook.binding.scheduler_pod import unbound_pod

OURS = "vgpu-admission.io/"
VOLCANO = VOCABULARIES[0]
SOFT, CUT = nodes_of(1, T4, name="soft"), nodes_of(1, A100_40, mode=Mode.MIG, name="cut")
CONTEXT = AdmissionContext(settings=Settings(), snapshot=snapshot(SOFT, CUT), host_paths=True)
ASKED = orjson.dumps({"mode": None, "containers": {"main": {NUMBER: "1"}}}).decode()
ASKED_MIG = orjson.dumps({"mode": "mig", "containers": {}}).decode()


def asking(**annotations: str) -> Json:
    """Write a pod whose annotations were not necessarily written by admission."""
    keys = {MODE if key == "mode" else OURS + key: text for key, text in annotations.items()}
    found = received(pod(container(limits={NUMBER: 1, MEMORY: 3000}), annotations=keys))
    found["metadata"] |= {"uid": "u", "annotations": keys}
    return found


def hook(written: Json) -> BindRequest:
    found = judge(bound(binding()), live(written), CONTEXT)
    assert isinstance(found, BindRequest), found
    return found


def extender(written: Json) -> PodClaim:
    found = unbound_pod(orjson.dumps(written), VOCABULARIES).claim
    assert isinstance(found, PodClaim)
    return found


def site(*nodes: str) -> ClusterView:
    known = {"soft": SOFT, "cut": CUT}
    return cluster_view(
        [gpu_node(known[name]) for name in nodes], [machine(name) for name in nodes], now=NOW
    )


def console(written: Json, *nodes: str) -> PodWhy:
    return why(PodFacts(pod=pod_of(written), site=site(*nodes)))


def test_a_mode_without_evidence_of_a_choice_is_the_users() -> None:
    """Annotation mode and mode-source alone are no evidence, so mig is what the user named.

    On a node without MIG the hook refuses the pod, and the console says that it never fits.
    """
    written = asking(**{"mode": "mig", "mode-source": "best"})
    bind_request = hook(written)

    explained = console(written, "soft")

    assert (bind_request.wanted.request.named_mode, bind_request.source) == (
        Mode.MIG,
        ModeSource.NAMED,
    )
    assert explained.request == bind_request.wanted.request
    assert explained.outlook is not None
    assert explained.outlook.verdict is FeasibilityVerdict.NEVER
    fitting = console(written, "soft", "cut").answers
    assert [answer.node for answer in fitting if answer.finding is None] == ["cut"]


def test_with_evidence_the_mode_is_open_again() -> None:
    """Admission found mig the best; the hook and the console may choose another."""
    written = asking(**{"mode": "mig", "mode-source": "best", "asked": ASKED})
    bind_request = hook(written)

    explained = console(written, "soft")

    assert (
        bind_request.wanted.request.named_mode,
        bind_request.wanted.mode,
        bind_request.source,
    ) == (
        None,
        None,
        ModeSource.BEST,
    )
    assert explained.request == bind_request.wanted.request
    assert [answer.node for answer in explained.answers if answer.finding is None] == ["soft"]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "mode": st.sampled_from(["mig", "hami-core"]),
            "mode-source": st.sampled_from(["best", "only", "named", "odd", ""]),
            "asked": st.sampled_from([ASKED, ASKED_MIG, "{}", "[", '{"mode":"odd"}']),
            "decision": st.just("abc"),
        },
    )
)
def test_hook_extender_and_console_read_every_pod_alike(annotations: dict[str, str]) -> None:
    """Whatever a tenant wrote under our keys."""
    written = asking(**annotations)
    wanted = hook(written).wanted

    asked, explained = extender(written), console(written, "soft", "cut").admitted

    assert explained is not None
    assert (asked.request, asked.mode) == (wanted.request, wanted.mode)
    assert (explained.request, explained.mode) == (wanted.request, wanted.mode)


@pytest.mark.parametrize(
    ("annotations", "source", "mode"),
    [
        pytest.param({}, ModeSource.BEST, None, id="nothing"),
        pytest.param({MODE: "mig"}, ModeSource.NAMED, None, id="named-by-the-user"),
        pytest.param(
            {MODE: "mig", f"{OURS}mode-source": "only", f"{OURS}asked": ASKED},
            ModeSource.ONLY,
            Mode.MIG,
            id="only",
        ),
        pytest.param(
            {MODE: "mig", f"{OURS}mode-source": "named", f"{OURS}asked": ASKED_MIG},
            ModeSource.NAMED,
            Mode.MIG,
            id="named-at-create",
        ),
        pytest.param(
            {MODE: "mig", f"{OURS}mode-source": "only", f"{OURS}asked": ASKED_MIG},
            ModeSource.NAMED,
            None,
            id="contradiction",
        ),
        pytest.param(
            {MODE: "mig", f"{OURS}mode-source": "best", f"{OURS}asked": "x" * 20_000},
            ModeSource.NAMED,
            None,
            id="too-long",
        ),
    ],
)
def test_a_mode_is_final_only_on_evidence(
    annotations: dict[str, str], source: ModeSource, mode: Mode | None
) -> None:
    """And then only where it was not merely the best."""
    named = Mode(annotations[MODE]) if MODE in annotations else None
    request = PodRequest(vocabulary=VOLCANO.name, containers=(), mode=named)

    found = admitted_request(annotations, request, VOCABULARIES)

    assert (found.source, found.mode) == (source, mode)
    assert (found.earlier is None) == (earlier_pass(annotations, VOLCANO) is None)


def test_marks_are_told_as_they_stand() -> None:
    """Believed or not; what is unknown counts as missing."""
    written = {MODE: "odd", f"{OURS}mode": "mig", f"{OURS}mode-source": "odd"}

    own, theirs = admission_marks(written, None), admission_marks(written, VOLCANO)

    assert (own.mode, own.source, own.digest) == (Mode.MIG, None, "")
    assert theirs.mode is None
