"""Bindings that a real API server sends through our webhook: one door, one promise, any caller."""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from allocator.audit.record import (
    AdmissionRecord,
    AnyRecord,
    BindRecord,
    SettingsRecord,
    SnapshotRecord,
)
from allocator.ledger.schema import spec_of, status_of
from console.replay.outcome import SameDecision
from console.replay.replay import replay_admission, replay_bind
from tests.builders.bindings import answered, binding, review
from tests.builders.gpunodes import entry
from tests.builders.model import T4, nodes_of, soft_grant
from tests.builders.pods import GPU_MEM, MODE, NUMBER, container, pod
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.binds import bind, denied, emptied, make, promised, two_boards, write
from tests.cluster.installation import GPU_NODES, PODS, SETTINGS, Installation
from tests.harness.records import strict_record

OURS = "vgpu-admission.io/"
IDS = "volcano.sh/vgpu-ids-new"


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation of two replicas with one GPU to cut and one to share."""
    with two_boards(programs, tmp_path_factory.mktemp("binding")) as found:
        yield found


@pytest.fixture
def team(site: Installation) -> Iterator[str]:
    """Return a namespace that opted in; its pods and promises go with the test."""
    with emptied(site) as found:
        yield found


@pytest.mark.parametrize(
    "legacy", [pytest.param(False, id="binding"), pytest.param(True, id="legacy")]
)
def test_a_bind_is_promised_and_told(site: Installation, team: str, *, legacy: bool) -> None:
    """Either way of binding a pod leaves an entry, and its annotations on the pod."""
    uid = make(site, team, "p", mode="hami-core")["metadata"]["uid"]

    bind(site, team, "p", node="soft", legacy=legacy)

    found = site.api.get(f"{PODS.format(team)}/p")
    annotations = found["metadata"]["annotations"]
    (entry,) = promised(site, "soft")
    assert (entry.uid, entry.pod, entry.namespace) == (uid, "p", team)
    assert found["spec"]["nodeName"] == "soft"
    assert annotations[f"{OURS}c0.visible"] == "GPU-soft-0"
    assert annotations[f"{OURS}c0.preload"] == "ld.so.preload"
    assert annotations[IDS] == "GPU-soft-0,NVIDIA,6000,0:"
    assert annotations["volcano.sh/bind-phase"] == "success"
    assert annotations[f"{OURS}served-by"] == "vgpu-admission"


@pytest.mark.parametrize("path", [pytest.param("pods/p/binding", id="binding"), "bindings"])
def test_binds_queue_by_themselves(site: Installation, team: str, path: str) -> None:
    """A scheduler's binds have a priority level of their own, so that a storm waits before us."""
    make(site, team, "p", mode="hami-core")
    schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    target = {"apiVersion": "v1", "kind": "Node", "name": "soft"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    scheduler = site.plane.api(site.plane.scheduler_token)

    with scheduler:
        reply = scheduler.create(f"/api/v1/namespaces/{team}/{path}", body)

    queued = site.api.get(f"{schemas}/vgpu-binds")["metadata"]["uid"]
    headers = {name.lower(): value for name, value in reply.headers.items()}
    assert headers["x-kubernetes-pf-flowschema-uid"] == queued


def test_a_namespace_may_demand_more_than_a_pod_has(site: Installation, team: str) -> None:
    """A pod from before is refused at its bind, the next one at once; who names nothing is cut."""
    make(site, team, "early", mode="hami-core")

    def refused(demand: str, written: Json) -> str:
        """Return why both replicas refuse a pod, once they know what the namespace demands."""
        annotations = {f"{OURS}min-isolation": demand}
        site.api.patch(f"/api/v1/namespaces/{team}", {"metadata": {"annotations": annotations}})
        wait_for(lambda: all(site.refusal(team, written) for _ in range(10)))
        return site.refusal(team, written)

    weak = refused("mig", pod(annotations={MODE: "hami-core"}))
    status, late = denied(site, team, "early", node="soft")
    unnamed = make(site, team, "unnamed")
    misspelt = refused("hard", pod())

    assert f"remove {MODE} [IsolationTooWeak" in weak
    assert (status, "[IsolationTooWeak]" in late) == (422, True)
    assert not promised(site, "soft")
    assert unnamed["metadata"]["annotations"][MODE] == "mig"
    assert '"hard" on the namespace is none of memory-only, hami-core, mig' in misspelt


def test_the_settings_may_leave_out_a_vocabulary(site: Installation, team: str) -> None:
    """A pod from before is refused at its bind, and the next one is left to another plugin."""
    shared = pod(container(limits={GPU_MEM: 2}))
    early = site.stored(team, shared | {"metadata": {"name": "early"}})
    before = site.api.get(SETTINGS)["data"]["settings.yaml"]
    narrow = "vocabularies: [volcano]"

    site.configure(narrow)
    try:
        wait_for(lambda: all(replica.obeys(narrow) for replica in site.replicas))
        status, late = denied(site, team, "early", node="soft")
        reply = site.api.create(PODS.format(team), shared | {"metadata": {"name": "later"}})
        both = site.refusal(team, pod(container(limits={NUMBER: 1, GPU_MEM: 2})))
        bind(site, team, "later", node="soft")
    finally:
        site.configure(before)
        wait_for(lambda: all(replica.obeys(before) for replica in site.replicas))
    bind(site, team, "early", node="soft")

    later = site.api.get(f"{PODS.format(team)}/later")
    assert (status, "[VocabularyNotServed]" in late) == (422, True)
    assert "the vocabulary gpushare, which this cluster does not serve" in reply.headers["Warning"]
    assert later["spec"]["containers"][0]["resources"]["limits"] == {GPU_MEM: "2"}
    assert later["spec"]["nodeName"] == "soft"
    assert "[VocabularyNotServed" in both
    assert [found.uid for found in promised(site, "soft")] == [early["metadata"]["uid"]]


def test_two_slices_of_one_board_are_disjoint(site: Installation, team: str) -> None:
    """Whatever their schedulers believe, no two pods have the same slots."""
    for name in ("a", "b"):
        make(site, team, name, mode="mig")
        same = {IDS: "GPU-cut-0[group1-0],NVIDIA,6000,0:"}
        bind(site, team, name, node="cut", annotations=same)

    masks = [
        grant.placed.mask
        for entry in promised(site, "cut")
        for grant in entry.containers[0].grants
        if grant.placed is not None
    ]
    assert len(masks) == 2
    assert not masks[0] & masks[1]


def test_what_a_pod_is_told_is_what_it_was_promised(site: Installation, team: str) -> None:
    """The assignment on the pod is the ledger's; a mode that was best is final now."""
    make(site, team, "p")

    bind(site, team, "p", node="soft", annotations={f"{OURS}assignment": "[]", MODE: "mig"})

    annotations = site.api.get(f"{PODS.format(team)}/p")["metadata"]["annotations"]
    entries = site.api.get(f"{GPU_NODES}/soft")["spec"]["entries"]
    assert orjson.loads(annotations[f"{OURS}assignment"]) == entries[0]["containers"]
    assert annotations[MODE] == "hami-core"


def test_a_scheduler_does_not_say_which_gpus_the_user_accepts(
    site: Installation, team: str
) -> None:
    """What the user wrote stays, and the bind is judged by it."""
    key = "volcano.sh/vgpu-use-gpuuuid"
    written = pod(annotations={MODE: "hami-core", key: "GPU-soft-0"})
    site.create(team, written | {"metadata": {**written["metadata"], "name": "p"}})

    bind(site, team, "p", node="soft", annotations={key: "GPU-other"})

    found = site.api.get(f"{PODS.format(team)}/p")
    assert found["metadata"]["annotations"][key] == "GPU-soft-0"


def test_a_node_of_another_boot_takes_no_bind(site: Installation, team: str) -> None:
    """What was reported before a reboot is not what is there now, however fresh it looks."""
    report = {**status_of(nodes_of(1, T4, name="soft")), "bootID": "first"}
    make(site, team, "p", mode="hami-core")
    restart(site, "second")
    try:
        write(site, "soft", {"status": report})
        wait_for(lambda: not site.api.get(f"{GPU_NODES}/soft")["status"].get("inventory"))

        write(site, "soft", {"status": report})
        status, _ = denied(site, team, "p", node="soft")
    finally:  # the node is that of other tests too
        restart(site, "first")
        write(site, "soft", {"status": report})

    assert (status, promised(site, "soft")) == (409, ())
    bind(site, team, "p", node="soft")


def restart(site: Installation, boot: str) -> None:
    """Let the Node report another boot id."""
    site.api.patch("/api/v1/nodes/soft/status", {"status": {"nodeInfo": {"bootID": boot}}})


def test_a_full_node_refuses_in_our_words(site: Installation, team: str) -> None:
    """What the scheduler repeats in FailedScheduling says what is short, and no entry stays."""
    make(site, team, "first", memory=10000, mode="hami-core")
    make(site, team, "second", memory=10000, mode="hami-core")
    bind(site, team, "first", node="soft")

    status, text = denied(site, team, "second", node="soft")

    assert status == 409
    assert 'admission webhook "bindings.vgpu-admission.io" denied the request: node "soft"' in text
    assert len(promised(site, "soft")) == 1
    assert "nodeName" not in site.api.get(f"{PODS.format(team)}/second")["spec"]


@pytest.mark.parametrize(
    ("to", "text"),
    [
        pytest.param({"node": "nowhere"}, "no GPUs known to vgpu-admission", id="node"),
        pytest.param({"name": "gone", "node": "soft"}, "does not exist", id="pod"),
        pytest.param({"node": "soft", "uid": "another"}, "recreated", id="uid"),
        pytest.param({"node": "cut"}, "mode", id="mode"),
    ],
)
def test_a_hopeless_bind_leaves_no_entry(
    site: Installation, team: str, *, to: Mapping[str, str], text: str
) -> None:
    """Unknown node, gone pod, a predecessor's uid, the wrong kind of GPU."""
    make(site, team, "p", mode="hami-core")

    _, message = denied(site, team, **{"name": "p", **to})

    assert text in message
    assert promised(site, "soft") == promised(site, "cut") == ()


def test_a_dry_run_leaves_no_entry(site: Installation, team: str) -> None:
    """It is refused or allowed as if it were real, and nothing stays."""
    make(site, team, "p", mode="hami-core")

    assert bind(site, team, "p", node="soft", dryRun="All").status == 201
    assert promised(site, "soft") == ()


def test_a_bound_pod_is_not_promised_again(site: Installation, team: str) -> None:
    """A replayed Binding is denied before anything is committed."""
    make(site, team, "p", mode="hami-core")
    bind(site, team, "p", node="soft")

    status, text = denied(site, team, "p", node="cut")

    assert (status, 'already bound to "soft"' in text) == (409, True)
    assert promised(site, "cut") == ()


def test_a_pod_that_asks_for_nothing_is_bound_anywhere(site: Installation, team: str) -> None:
    """Other pods of the namespace pass, and bring nothing of ours with them."""
    site.create(team, pod(container()))

    bind(site, team, "p", node="nowhere", annotations={f"{OURS}c0.visible": "GPU-soft-0"})

    found = site.api.get(f"{PODS.format(team)}/p")
    assert found["spec"]["nodeName"] == "nowhere"
    assert f"{OURS}c0.visible" not in found["metadata"].get("annotations", {})


def test_replicas_share_one_ledger(site: Installation, team: str) -> None:
    """Rival binds through two replicas give each slot away once; who comes late is refused."""
    names = [f"p{i}" for i in range(6)]
    for name in names:
        make(site, team, name, mode="mig")
    outcomes: list[bool] = []

    def called(name: str) -> None:
        try:
            outcomes.append(bind(site, team, name, node="cut").status == 201)
        except ApiError as error:
            outcomes.append(error.status != 409)

    def past_the_api_server(name: str) -> None:
        body = review(binding(node="cut") | {"metadata": {"name": name}}, name=name, namespace=team)
        _, answer = site.replicas[1].review("/mutate/bindings", body)
        outcomes.append(answered(answer)["allowed"])

    ways = [called, past_the_api_server] * 3
    threads = [
        threading.Thread(target=way, args=(name,)) for way, name in zip(ways, names, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    masks = [
        g.placed.mask for e in promised(site, "cut") for g in e.containers[0].grants if g.placed
    ]
    assert sorted(outcomes) == [False] * 4 + [True] * 2
    assert sorted(masks) == [0b0011, 0b1100]  # 2g.12gb is the least that has 6000 MiB


def test_a_pod_that_is_gone_frees_its_gpu_when_its_agent_says_so(
    site: Installation, team: str
) -> None:
    """Not before: containers may outlive their pod's object."""
    make(site, team, "p", mode="hami-core")
    bind(site, team, "p", node="soft")
    uid = promised(site, "soft")[0].uid
    generation = site.api.get(f"{GPU_NODES}/soft")["metadata"]["generation"]
    write(site, "soft", {"status": {"held": [uid], "observedGeneration": generation}})

    site.api.delete(f"{PODS.format(team)}/p", {"gracePeriodSeconds": 0})

    time.sleep(2.5)  # at least one sweep
    assert promised(site, "soft")
    write(site, "soft", {"status": {"held": []}})
    assert wait_for(lambda: not promised(site, "soft"))


def test_a_promise_to_a_pod_that_was_never_bound_ages(site: Installation, team: str) -> None:
    """An old one goes, a young one stays: its Binding may be on its way."""
    uids = {name: make(site, team, name)["metadata"]["uid"] for name in ("old", "young")}
    now = datetime.now(UTC)
    share = soft_grant(3000, gpu="GPU-soft-0")
    entries = [
        replace(entry(uids[name], share, since=since), namespace=team, pod=name)
        for name, since in (("old", now - timedelta(seconds=95)), ("young", now))
    ]

    write(site, "soft", {"spec": spec_of(entries)})

    assert wait_for(lambda: len(promised(site, "soft")) == 1)
    assert promised(site, "soft")[0].pod == "young"


def test_what_was_recorded_can_be_decided_again(site: Installation, team: str) -> None:
    """By the records alone, as a store would have them: the same modes, on the same GPUs."""
    for name, mode, node in (("a", "hami-core", "soft"), ("b", "mig", "cut")):
        make(site, team, name, mode=mode)
        bind(site, team, name, node=node)

    def recorded() -> list[AnyRecord]:
        lines = [line for replica in site.replicas for line in replica.lines() if "kind" in line]
        return [strict_record(orjson.dumps(line)) for line in lines]

    def binds() -> list[BindRecord]:
        return [one for one in recorded() if type(one) is BindRecord and one.namespace == team]

    wait_for(lambda: binds()[1:])
    records = recorded()
    contents = {one.content_digest: one for one in records if isinstance(one, SnapshotRecord)}
    settings = {one.content_digest: one for one in records if isinstance(one, SettingsRecord)}
    replays = [
        replay_bind(one, settings[one.settings], contents[one.snapshot], version=one.version)
        for one in binds()
    ] + [
        replay_admission(one, settings[one.settings], contents[one.snapshot], version=one.version)
        for one in records
        if isinstance(one, AdmissionRecord) and one.namespace == team and one.asked
    ]

    assert len(replays) == 4
    assert [one for one in replays if not isinstance(one, SameDecision)] == []
