"""A Binding is judged against the live pod, and goes on with what was promised and no more."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson
import pytest

from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import DEFAULTS, NodeAgent, Settings
from allocator.ledger.assign import assign
from allocator.model.allocation import Assignment
from allocator.model.decision import ModeSource
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.placement.choose import PlacementPolicy
from tests.builders.bindings import UID, applied, binding, bound, live, review, stored
from tests.builders.gpunodes import NOON, entry, ledger
from tests.builders.model import nodes_of, snapshot, soft_grant
from tests.builders.pods import (
    CORES,
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
    admitted,
    container,
    pod,
    received,
)
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_annotations import Commit, committed_patch, strip_reserved
from webhook.binding.decide import (
    BindRequest,
    Denied,
    Judgement,
    NoRequest,
    bind_inputs,
    entry_of,
    judge,
    surplus_ledgers,
)
from webhook.review.admission_review import BadObjectError, NotAReviewError, Refusal
from webhook.review.binding_schema import live_pod, parse

OWN = "vgpu-admission.io/"
IDS = "volcano.sh/vgpu-ids-new"
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
CUT, SOFT = nodes_of(2, mode=Mode.MIG), nodes_of(2)
IN_MPS = nodes_of(2, mode=Mode.MPS, name="beside")
ASKING = pod(container(limits={NUMBER: 1, MEMORY: 3000}))
TWO = container(limits={NUMBER: 2, MEMORY: 3000, CORES: 30})


def around(node: Node, **settings: object) -> AdmissionContext:
    fields: dict[str, Any] = settings
    return AdmissionContext(
        settings=Settings(**fields) if fields else DEFAULTS, snapshot=snapshot(node)
    )


def wish(written: Any, node: Node, **annotations: str) -> BindRequest:  # noqa: ANN401 -- JSON
    view = around(node)
    found = judge(
        bound(binding(annotations=annotations)), live(admitted(received(written), view)), view
    )
    assert isinstance(found, BindRequest), found
    return found


def result(
    written: Any,  # noqa: ANN401 -- JSON
    node: Node,
    *,
    agent: NodeAgent = NodeAgent.OURS,
    brought: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 -- JSON
    """Return the Binding of a pod as it goes on when it was promised something on *node*."""
    found = wish(written, node, **(brought or {}))
    at = ledger(node)
    assignment = assign(at, found.wanted, policy=PlacementPolicy())
    assert isinstance(assignment, Assignment), assignment
    promise = Commit(
        bind=found,
        assignment=assignment,
        entry=entry_of(found, assignment, NOW),
        inputs=bind_inputs(found, around(node), at),
        served_by=agent,
    )
    return applied(binding(annotations=dict(brought or {})), committed_patch(promise, NOW))


def test_a_pod_that_asks_for_nothing_passes() -> None:
    """Its Binding only loses what nobody but us may bring."""
    view = around(SOFT)
    brought = {IDS: "GPU-x,NVIDIA,1,1:", f"{OWN}c0.visible": "GPU-x", "else": "stays"}

    judged = judge(bound(binding()), live(received(pod(container()))), view)

    assert isinstance(judged, NoRequest)
    written = binding(annotations=brought)
    after = applied(written, strip_reserved(bound(written).binding, view.vocabularies))
    assert after["metadata"]["annotations"] == {"else": "stays"}


@pytest.mark.parametrize(
    ("metadata", "spec", "text"),
    [
        pytest.param({"uid": "other"}, {}, "recreated", id="uid"),
        pytest.param({"deletionTimestamp": "2026-11-21T12:00:00Z"}, {}, "deleted", id="deleting"),
        pytest.param({}, {"schedulingGates": [{"name": "g"}]}, "scheduling gates", id="gated"),
        pytest.param({}, {"nodeName": "n9"}, 'already bound to "n9"', id="bound"),
    ],
)
def test_what_the_registry_would_refuse_is_denied_first(
    metadata: Mapping[str, object], spec: Mapping[str, Any], text: str
) -> None:
    """Nothing is committed for a pod that cannot be bound any more, or not yet."""
    found = stored(received(pod(container(limits={NUMBER: 1}), **spec)), **metadata)

    judged = judge(bound(binding(uid=UID)), live_pod(orjson.dumps(found)), around(SOFT))

    assert isinstance(judged, Refusal)
    assert judged.code == 409
    assert text in judged.message


def test_a_pod_that_has_ended_is_denied() -> None:
    """Nobody starts it again."""
    ended = replace(live(received(ASKING)), over=True)

    assert isinstance(judge(bound(binding()), ended, around(SOFT)), Refusal)


def test_a_request_that_cannot_be_read_is_denied() -> None:
    """A pod that came past admission with nonsense gets nothing."""
    odd = received(pod(container(limits={NUMBER: 1, MEMORY: 1, PERCENT: 1})))

    judged = judge(bound(binding()), live(odd), around(SOFT))

    assert isinstance(judged, Denied)
    assert (judged.refusal.code, judged.reason) == (422, "ConflictingRequest")


@pytest.mark.parametrize(
    ("annotations", "node", "source", "mode"),
    [
        pytest.param({}, SOFT, ModeSource.ONLY, Mode.HAMI_CORE, id="only"),
        pytest.param({MODE: "mig"}, CUT, ModeSource.NAMED, Mode.MIG, id="named"),
    ],
)
def test_a_mode_that_is_not_the_best_is_final(
    annotations: Mapping[str, str], node: Node, *, source: ModeSource, mode: Mode
) -> None:
    """What the user named, or what alone could serve, is not revised at bind."""
    found = wish(pod(annotations=annotations), node)

    assert (found.source, found.wanted.mode) == (source, mode)


def test_a_best_mode_may_be_revised() -> None:
    """Injected open, it is decided by what is free on the node."""
    view = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(CUT, nodes_of(2, name="n1")))
    found = judge(bound(binding()), live(admitted(received(ASKING), view)), view)

    assert isinstance(found, BindRequest)
    assert (found.source, found.wanted.mode, found.wanted.request.named_mode) == (
        ModeSource.BEST,
        None,
        None,
    )


def test_a_scheduler_wishes_on_the_binding_or_the_pod() -> None:
    """The Binding's list is newer than the pod's."""
    brought = wish(ASKING, SOFT, **{IDS: "GPU-a,NVIDIA,1,0:"})

    assert brought.wanted.gpus == ("GPU-a",)
    assert wish(ASKING, SOFT).wanted.gpus == ()


POLICY = "volcano.sh/vgpu-podgroup-policy"
GROUP, OTHER_GROUP = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"


@pytest.mark.parametrize(
    ("annotations", "binding_list"),
    [
        ({POLICY: "spread", GROUP: "g"}, True),
        ({POLICY: "spread", OTHER_GROUP: "g"}, True),
        ({POLICY: "spread", GROUP: "", OTHER_GROUP: "g"}, True),
        ({POLICY: "spread"}, False),
        ({POLICY: "spread", GROUP: ""}, False),
        ({POLICY: "Spread", GROUP: "g"}, False),
        ({POLICY: " spread", GROUP: "g"}, False),
        ({POLICY: "binpack", GROUP: "g"}, False),
        ({POLICY: "", GROUP: "g"}, False),
        ({POLICY: "spread,spread", GROUP: "g"}, False),
        ({POLICY: "spread\x00", GROUP: "g"}, False),
        ({GROUP: "g"}, False),
    ],
)
def test_a_list_made_by_a_hard_policy_binds(
    annotations: dict[str, str], binding_list: bool
) -> None:
    """Volcano spreads pods of a PodGroup that say so, exactly; elsewhere its list is a wish."""
    written = pod(container(limits={NUMBER: 1, MEMORY: 3000}), annotations=annotations)

    found = wish(written, SOFT, **{IDS: "GPU-a,NVIDIA,1,0:"})

    assert found.wanted.hard_policy == (f"{POLICY}=spread" if binding_list else "")


@pytest.mark.parametrize(
    ("labels", "rules", "binding_list"),
    [
        ({"app": "a"}, ({"app": "a"},), True),
        ({"app": "a", "team": "x"}, ({"app": "b"}, {"app": "a"}), True),
        ({"app": "a", "team": "x"}, ({"app": "a", "team": "x"},), True),
        ({"app": "a"}, ({"app": "a", "team": "x"},), False),
        ({"app": "a"}, ({"app": "A"},), False),
        ({"app": "a"}, ({"app": ""},), False),
        ({}, ({"app": ""},), False),
        ({"app": ""}, ({"app": ""},), True),
        ({"app": "a"}, (), False),
    ],
)
def test_a_list_made_by_an_exclusive_rule_binds(
    labels: dict[str, str], rules: tuple[dict[str, str], ...], binding_list: bool
) -> None:
    """A pod that has all labels of a rule shares no GPU with another of that rule."""
    view = around(SOFT, gpu_exclusive_rules=rules)
    stored = admitted(received(ASKING), view)
    stored["metadata"]["labels"] = labels
    brought = binding(annotations={IDS: "GPU-a,NVIDIA,1,0:"})

    found = judge(bound(brought), live(stored), view)

    assert isinstance(found, BindRequest)
    assert found.wanted.hard_policy == ("deviceshare.GPUExclusiveRules" if binding_list else "")


def judged_later(written: Any, demand: str, *nodes: Node) -> Judgement:  # noqa: ANN401 -- JSON
    """Return the judgement of a pod that was admitted before its namespace had a *demand*."""
    view = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(*nodes))
    stored = live(admitted(received(written), view))
    policy = NamespacePolicy(min_isolation=demand)
    return judge(bound(binding()), stored, msgspec.structs.replace(view, namespace=policy))


@pytest.mark.parametrize(
    ("written", "node", "demand"),
    [
        pytest.param(ASKING, SOFT, "mig", id="chosen"),
        pytest.param(pod(annotations={MODE: "hami-core"}), SOFT, "mig", id="named"),
        pytest.param(pod(annotations={MODE: "mps"}), IN_MPS, "mig", id="mps"),
        pytest.param(pod(annotations={MODE: "mps"}), IN_MPS, "mps", id="mps-is-no-level"),
        pytest.param(pod(container(limits={GPU_MEM: 4})), SOFT, "hami-core", id="counted-only"),
        pytest.param(pod(annotations={MODE: "mig"}), CUT, "MIG", id="unreadable"),
    ],
)
def test_a_demand_holds_at_the_bind(
    written: Any,  # noqa: ANN401 -- JSON
    node: Node,
    demand: str,
) -> None:
    """The namespace was annotated after the pod was admitted."""
    judged = judged_later(written, demand, node)

    assert isinstance(judged, Denied)
    assert (judged.refusal.code, judged.reason) == (422, "IsolationTooWeak")
    assert "vgpu-admission.io/min-isolation" in judged.refusal.message


@pytest.mark.parametrize("demand", ["memory-only", "hami-core"])
def test_a_demand_for_software_is_met_by_mps(demand: str) -> None:
    """The mode isolates as hami-core does, so the pod that names it is bound in it."""
    judged = judged_later(pod(annotations={MODE: "mps"}), demand, IN_MPS)

    assert isinstance(judged, BindRequest)
    assert judged.wanted.mode is Mode.MPS


def test_a_demand_closes_an_open_mode() -> None:
    """The bind gives it the only mode that is strong enough."""
    open_one = judged_later(ASKING, "mig", CUT, nodes_of(2, name="n1"))
    either = judged_later(ASKING, "hami-core", CUT, nodes_of(2, name="n1"))

    assert isinstance(open_one, BindRequest)
    assert isinstance(either, BindRequest)
    assert (open_one.wanted.mode, either.wanted.mode) == (Mode.MIG, None)


def test_a_soft_share_is_told_in_full() -> None:
    """Volcano's six are finished, and every variable that the pod injects has its annotation."""
    after = result(pod(TWO), SOFT, brought={MODE: "mig", f"{OWN}forged": "1"})

    found = after["metadata"]["annotations"]
    device = "NVIDIA,3000,30:"
    assert after["metadata"]["uid"] == UID
    assert {key: found[key] for key in found if key.startswith("volcano.sh/")} == {
        "volcano.sh/vgpu-node": "n0",
        "volcano.sh/vgpu-time": "18446744073709551615",
        IDS: f"GPU-n0-0,{device}GPU-n0-1,{device}",
        "volcano.sh/devices-to-allocate": "",
        "volcano.sh/bind-time": str(int(NOW.timestamp())),
        "volcano.sh/bind-phase": "success",
        MODE: "hami-core",
    }
    assert {key[len(OWN) :]: found[key] for key in found if key.startswith(f"{OWN}c")} == {
        "c0.visible": "GPU-n0-0,GPU-n0-1",
        "c0.memory-0": "3000m",
        "c0.memory-1": "3000m",
        "c0.cores": "30",
        "c0.preload": "ld.so.preload",
    }
    assert found[f"{OWN}served-by"] == "vgpu-admission"
    assert f"{OWN}forged" not in found


def test_a_slice_leaves_what_is_visible_to_the_agent() -> None:
    """An instance has no UUID yet; the list names what was asked for, the entry what it gets."""
    found = result(ASKING, CUT)["metadata"]["annotations"]

    assert f"{OWN}c0.visible" not in found
    assert found[f"{OWN}c0.preload"] == "ld.so.preload.empty"
    assert found[IDS].endswith(",NVIDIA,3000,0:")
    device = orjson.loads(found[f"{OWN}assignment"])[0]["devices"][0]
    assert (device["profile"], device["memoryMiB"]) == ("1g.5gb", 4864)


def test_containers_are_told_apart() -> None:
    """Each container's annotations are under the key that its own variables read."""
    written = pod(container("web"), container("gpu", limits={NUMBER: 1, MEMORY: 1000}))

    found = result(written, SOFT)["metadata"]["annotations"]

    assert found[IDS].startswith(";GPU-n0-")
    assert f"{OWN}c1.visible" in found
    assert f"{OWN}c0.visible" not in found


def test_the_upstream_plugin_has_work_to_do() -> None:
    """Where it serves the node, the list is what it shall allocate, as from its own scheduler."""
    found = result(ASKING, SOFT, agent=NodeAgent.UPSTREAM)["metadata"]["annotations"]

    assert found["volcano.sh/bind-phase"] == "allocating"
    assert found["volcano.sh/devices-to-allocate"] == found[IDS]
    assert f"{OWN}c0.visible" not in found


def test_gpushare_keeps_its_mode_beside_volcanos() -> None:
    """A vocabulary without a mode of its own has it under our key."""
    found = result(pod(container(limits={GPU_MEM: 2})), SOFT)["metadata"]["annotations"]

    assert found[f"{OWN}mode"] == "memory-only"
    assert found[f"{OWN}c0.preload"] == "ld.so.preload.empty"


def test_the_oldest_entries_elsewhere_are_too_many() -> None:
    """A pod keeps one of them beside its new one, the youngest, whatever is read of the rest."""
    ledgers = [
        ledger(
            nodes_of(1, name=name), [entry("u", soft_grant(3000), since=NOON.replace(hour=hour))]
        )
        for name, hour in {"n1": 3, "n2": 1, "n3": 2}.items()
    ]
    other = ledger(nodes_of(1, name="n4"), [entry("v", soft_grant(3000))])

    assert [one.name for one in surplus_ledgers("u", [*ledgers, other])] == ["n2", "n3"]
    assert [one.name for one in surplus_ledgers("u", [ledgers[0], other])] == []
    assert surplus_ledgers("u", []) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"request":{}}',
        review(binding()).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v2"),
        review(binding(), uid=""),
    ],
)
def test_what_is_no_review_gets_no_answer(body: bytes) -> None:
    """There is no uid to answer to."""
    with pytest.raises(NotAReviewError):
        parse(body)


@pytest.mark.parametrize(
    ("written", "request_"),
    [
        pytest.param(binding(), {"kind": {"kind": "Pod"}}, id="kind"),
        pytest.param(None, {}, id="no-object"),
        pytest.param(binding(node=""), {}, id="no-node"),
        pytest.param(binding(node="../nodes"), {}, id="path"),
        pytest.param(binding(), {"name": "q"}, id="two-names"),
        pytest.param(binding(annotations=1), {}, id="annotations"),
        pytest.param(binding() | {"target": {"kind": "Rack", "name": "n"}}, {}, id="rack"),
    ],
)
def test_what_is_no_binding_is_refused(written: Any, request_: Mapping[str, object]) -> None:  # noqa: ANN401 -- JSON
    """The answer says what was expected, and carries the review's uid."""
    with pytest.raises(BadObjectError) as caught:
        parse(review(written, **request_))

    assert caught.value.uid == "review-1"


def test_a_legacy_binding_names_its_pod_in_the_object() -> None:
    """The request of a plain ``bindings`` may have no name of its own."""
    assert parse(review(binding(), name=None)).pod == "p"


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/use-gputype",
        "nvidia.com/nouse-gputype",
        "volcano.sh/vgpu-use-gpuuuid",
        "volcano.sh/vgpu-nouse-gpuuuid",
        "metax-tech.com/use-gpuuuid",
        "metax-tech.com/sgpu-qos-policy",
        "metax-tech.com/sgpu-app-class",
        "metax-tech.com/sgpu-topology-aware",
        "metax-tech.com/gpu-group-size",
        "hami.io/gpu-scheduler-policy",
        "hami.io/node-scheduler-policy",
    ],
)
def test_a_scheduler_does_not_say_which_gpus_the_user_accepts(key: str) -> None:
    """The Binding's annotations land on the pod, where the next decision would believe them."""
    found = result(ASKING, SOFT, brought={key: "GPU-x"})

    assert key not in found["metadata"]["annotations"]
    written = binding(annotations={key: "GPU-x", "example.com/other": "stays"})
    after = applied(written, strip_reserved(bound(written).binding, around(SOFT).vocabularies))
    assert after["metadata"]["annotations"] == {"example.com/other": "stays"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, 0, id="first"),
        pytest.param(-60, 0, id="long-ago"),
        pytest.param(-1, 0, id="a-second-ago"),
        pytest.param(0, 1, id="in-the-same-second"),
        pytest.param(4, 5, id="by-a-clock-that-is-ahead"),
        pytest.param(29, 30, id="many-in-one-second"),
        pytest.param(30, 0, id="no-further"),
        pytest.param(86_400, 0, id="by-a-broken-clock"),
    ],
)
def test_a_renewed_entry_differs_from_the_one_before(before: int | None, after: int) -> None:
    """By its time, which goes on, and never far ahead: an entry must expire."""
    node = nodes_of(1)
    found = wish(pod(container(limits={NUMBER: 1, MEMORY: 1000})), node)
    assignment = assign(ledger(node), found.wanted, policy=PlacementPolicy())
    assert isinstance(assignment, Assignment)
    now = NOW.replace(microsecond=999_999)
    first = entry_of(found, assignment, now)
    earlier = None if before is None else replace(first, since=NOW + timedelta(seconds=before))

    renewed = entry_of(found, assignment, now, earlier=earlier)

    assert renewed.since == NOW + timedelta(seconds=after)
    assert renewed.since != (earlier and earlier.since)
