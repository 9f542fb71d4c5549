"""A day of decisions: the story, told to the real handlers of the webhook by a clock of its own.

The handlers answer reviews as they do in a cluster, and their records are those of the day. What
surrounds them is played here: the API server that stores what passed, controllers that try again, a
scheduler that binds, and time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final

import orjson

from allocator.cluster.configmaps import SETTINGS_NAME, text_digest
from allocator.cluster.inventory import DemandLearner
from allocator.cluster.objects import ConfigMap, decode_config_map
from allocator.cluster.pods import Pods
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.namespace_policy import namespace_policy
from allocator.config.settings import Settings, settings_of
from allocator.model.allocation import Entry
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import PodRequest
from allocator.placement.fleet import snapshot_of
from allocator.request.pod_summary import pod_summary
from demo.cluster import DemoCluster, PodKey
from demo.node_parts import DemoNodes
from demo.objects import (
    SCHEDULER,
    Json,
    binding_object,
    config_map_object,
    controller_account,
    creator,
    made_uid,
    operations_of,
    pod_object,
    replica_set_object,
    response_of,
    review,
    rfc3339,
    suffix,
    workload_object,
)
from demo.patches import patched
from demo.scheduler import choice_for, unschedulable_pod
from demo.story import OverusedShare, PodMaker, Story, StoryWorkload, occurrences
from demo.timeline import Timeline
from demo.webhook_parts import DemoSurroundings, webhook_parts
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.records.trail import audit_trail

_POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
_BINDING: Final = {"group": "", "version": "v1", "kind": "Binding"}
_KINDS: Final = {
    PodMaker.DEPLOYMENT: {"group": "apps", "version": "v1", "kind": "Deployment"},
    PodMaker.JOB: {"group": "batch", "version": "v1", "kind": "Job"},
}
_REPLICA_SET: Final = {"group": "apps", "version": "v1", "kind": "ReplicaSet"}
FIRST_RETRY: Final = 5.0  # seconds until a controller tries a refused pod again; then doubled
LONGEST_RETRY: Final = 1000.0  # seconds
NODES_AGE: Final = timedelta(days=40)  # at the beginning of the day
LOOK_EVERY: Final = 20.0  # seconds between two looks for pods that wait
STARTS_AFTER: Final = 3.0  # seconds from the bind to the devices
SEEN_AFTER: Final = 4.0  # seconds from there to the first process


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingPod:
    """A pod of a workload; its ``key`` is known once it is stored."""

    key: PodKey
    workload: StoryWorkload
    owner: str  # uid of the workload
    number: str  # among the pods of the workload


@dataclass(slots=True, kw_only=True)
class DayResult:
    """What is left of a day: records as they were made, and the cluster at its end."""

    cluster: DemoCluster
    settings: Settings
    records: list[Mapping[str, Any]] = field(default_factory=list)

    def remember(self, record: Mapping[str, Any], /) -> None:
        """Take a note of one record."""
        self.records.append(record)


class Day:
    """The day before *end*: 24 hours in some seconds."""

    def __init__(self, story: Story, nodes: Iterable[Node], *, end: datetime, version: str) -> None:
        """Tell *story* on *nodes*; *end* is an aware time, *version* of this program."""
        self._story = story
        self._time = Timeline(end)
        self._waiting: dict[PodKey, AskingPod] = {}
        self._bound: dict[PodKey, AskingPod] = {}
        self._tried: set[PodKey] = set()
        self._freed = False
        self._looking = False
        self._learner = DemandLearner()
        self._versions = count(1)
        self._snapshot: Snapshot | None = None
        self._pods = Pods()
        self._pods.update({})  # a list without pods
        self._config_map: ConfigMap | None = None
        self._text = story.settings[0].text
        cluster = DemoCluster(nodes, created=rfc3339(self._time.begin - NODES_AGE))
        self.result = DayResult(cluster=cluster, settings=settings_of(self._text))
        self._trail = audit_trail(
            self.result,
            instance="vgpu-admission-demo",
            version=version,
            entropy=1,
            now=self._time.now,
        )
        self._nodes = DemoNodes(cluster, self.result, self._time, version=version)
        self._webhook = webhook_parts(
            DemoSurroundings(
                cluster=cluster,
                trail=self._trail,
                view=self._view,
                digest=lambda: self._digest,
                config_maps=self._config_maps,
                learn=self._learn,
                pods=self._pods,
                timeline=self._time,
            )
        )

    def _view(self, namespace: str) -> AdmissionView:
        settings = self.result.settings
        context = AdmissionContext(
            settings=settings,
            snapshot=self._picture(),
            vocabularies=configured_vocabularies(settings, DeviceConfig()),
            host_paths=True,
            namespace=namespace_policy(self._story.namespaces.get(namespace, {})),
        )
        return AdmissionView(context=context, settings_digest=self._digest, age=0.0)

    def _config_maps(self) -> Mapping[str, ConfigMap]:
        found = self._config_map
        return {} if found is None else {found.name: found}

    @property
    def _digest(self) -> str:
        """Return the digest of the settings in force."""
        return text_digest(self._text)

    def _picture(self) -> Snapshot:
        """Return the cluster as the webhook's inventory would."""
        if self._snapshot is None:
            ledgers = self.result.cluster.ledgers().values()
            self._snapshot = snapshot_of(
                (ledger.node for ledger in ledgers),
                version=str(next(self._versions)),
                complete=True,
                demand=self._learner.demand,
            )
        return self._snapshot

    def _learn(self, uid: str, request: PodRequest, failed: bool) -> None:  # noqa: FBT001 -- a callback
        boards = {kind.board for kind in self._picture().offers if kind.board is not None}
        if self._learner.learn(uid, request, boards, failed=failed):
            self._snapshot = None

    async def run(self) -> DayResult:
        """Tell the whole day."""
        story, time = self._story, self._time
        for change in story.settings:
            time.at(time.time(change.at), partial(self._configure, change.text))
        for workload in story.workloads:
            for minute, one in occurrences(workload):
                time.at(time.minute(minute), partial(self._create, one, minute))
        time.at(time.time(story.broken.at), self._break_gpu)
        for overuse in story.overuse:
            time.at(time.time(overuse.at), partial(self._overuse, overuse))
        time.at(time.begin, self._look_for_waiting)
        await time.run()
        return self.result

    async def _look_for_waiting(self) -> None:
        """Have the leader's controller look for pods without a node, as long as there are some."""
        await self._webhook.waiting.sweep()
        self._looking = bool(self._waiting)
        if self._looking:
            self._time.after(LOOK_EVERY, self._look_for_waiting)

    async def _configure(self, text: str) -> None:
        """Bring *text* into force."""
        self._text, self.result.settings = text, settings_of(text)
        document = config_map_object(SETTINGS_NAME, text, rfc3339(self._time.now()))
        self._config_map = decode_config_map(orjson.dumps(document))
        await self._webhook.settings.sweep()

    async def _break_gpu(self) -> None:
        """Report a GPU as broken; its pods are deleted, and their controllers make others."""
        broken, cluster = self._story.broken, self.result.cluster
        uuid = cluster.break_gpu(broken.node, broken.gpu, broken.reason)
        if not uuid:  # another fleet
            return
        self._nodes.report_health(broken.node, uuid, broken.reason)
        self._snapshot = None
        for pod in tuple(self._bound.values()):
            entry = self._entry(broken.node, pod)
            containers = () if entry is None else entry.containers
            if any(grant.gpu == uuid for one in containers for grant in one.grants):
                await self._remove(pod)
                if pod.workload.kind is not PodMaker.POD:
                    self._time.after(2, partial(self._ask, replace(pod, number=f"{pod.number}+")))

    async def _overuse(self, overuse: OverusedShare) -> None:
        """Let a pod hold more memory than it was promised."""
        key = overuse.namespace, overuse.pod
        pod = self._bound.get(key)
        if pod is not None:
            node = str(self.result.cluster.pods[key]["spec"]["nodeName"])
            entry = self._entry(node, pod)
            if entry is not None:
                self._nodes.observe(node, entry, overuse.memory)

    def _entry(self, node: str, pod: AskingPod) -> Entry | None:
        """Return what the ledger of *node* promises to *pod*."""
        ledger = self.result.cluster.ledger(node)
        return None if ledger is None else ledger.entry(self._uid(pod.key))

    def _uid(self, key: PodKey) -> str:
        return str(self.result.cluster.pods[key]["metadata"]["uid"])

    async def _create(self, workload: StoryWorkload, minute: int) -> None:
        """Create a workload, whose controller then creates its pods."""
        uid = made_uid(workload.namespace, workload.name, minute)
        if workload.kind is not PodMaker.POD:
            user = {"username": workload.person, "groups": list(workload.groups)}
            document = workload_object(workload, uid)
            self._webhook.workloads.warn(review(_KINDS[workload.kind], document, user))
        if workload.kind is PodMaker.DEPLOYMENT:
            document = replica_set_object(workload, uid)
            user = controller_account("deployment-controller")
            self._webhook.workloads.warn(review(_REPLICA_SET, document, user))
        if workload.until is not None:
            self._time.at(self._time.time(workload.until), partial(self._delete, uid))
        for number in range(workload.pods):
            pod = AskingPod(key=("", ""), workload=workload, owner=uid, number=str(number))
            self._time.after(1 + number / 4, partial(self._ask, pod))

    async def _ask(self, asking: AskingPod, failures: int = 0) -> None:
        """Create one pod as the API server does: both passes of admission, then it is stored."""
        workload, which = asking.workload, (asking.owner, asking.number)
        user, pod = creator(workload), pod_object(workload, asking.owner)
        unique = {"uid": made_uid("review", which, failures)}
        response = response_of(self._webhook.reviewer.mutate(review(_POD, pod, user, **unique)))
        if response["allowed"]:
            pod = patched(pod, operations_of(response))
            metadata = pod["metadata"]
            metadata |= {
                "name": metadata.get("name") or metadata["generateName"] + suffix(which),
                "uid": made_uid("pod", which),
                "creationTimestamp": rfc3339(self._time.now()),
            }
            body = review(_POD, pod, user, uid=made_uid("check", which, failures))
            response = response_of(self._webhook.reviewer.validate(body))
        if not response["allowed"]:
            self._try_later(asking, failures)
            return
        pod["status"] = {"phase": "Pending", "conditions": []}
        pod["spec"]["schedulerName"] = "default-scheduler"
        key = (workload.namespace, str(pod["metadata"]["name"]))
        self._store(key, pod)
        self._waiting[key] = replace(asking, key=key)
        self._time.after(0.4, self._schedule)

    def _try_later(self, asking: AskingPod, failures: int) -> None:
        """Have a controller try a refused pod again, as long as its workload is there."""
        workload = asking.workload
        if workload.kind is PodMaker.POD:
            return
        until = self._time.end if workload.until is None else self._time.time(workload.until)
        pause = min(LONGEST_RETRY, FIRST_RETRY * 2**failures)
        if self._time.now() + timedelta(seconds=pause) < until:
            self._time.after(pause, partial(self._ask, asking, failures + 1))

    def _store(self, key: PodKey, pod: Json | None) -> None:
        """Store or remove a pod, and tell who follows pods."""
        pods = self.result.cluster.pods
        if pod is None:
            uid = self._uid(key)
            del pods[key]
            self._pods.update({uid: None})
            return
        pods[key] = pod
        self._pods.update({pod["metadata"]["uid"]: pod_summary(orjson.dumps(pod))})

    async def _schedule(self) -> None:
        """Bind what waits, the oldest first; what fits nowhere is tried on one node, once."""
        failed: set[tuple[str, str]] = set()
        for pod in tuple(self._waiting.values()):
            kind = pod.workload.namespace, pod.workload.name
            if kind in failed or (pod.key in self._tried and not self._freed):
                continue
            document = self.result.cluster.pods[pod.key]
            choice = choice_for(document, self._view(pod.key[0]).context)
            if choice.assignment is not None:
                await self._bind(pod, choice.assignment.node)
                continue
            failed.add(kind)
            if pod.key not in self._tried:
                await self._bind(pod, self._any_node(pod))
                nodes = len(self.result.cluster.nodes)
                self._store(pod.key, unschedulable_pod(document, choice, nodes))
            self._tried.add(pod.key)
        self._freed = False
        if self._waiting and not self._looking:
            self._looking = True
            self._time.after(LOOK_EVERY, self._look_for_waiting)

    def _any_node(self, pod: AskingPod) -> str:
        names = sorted(self.result.cluster.nodes)
        return names[int(made_uid("node of", pod.key)[:4], 16) % len(names)]

    async def _bind(self, pod: AskingPod, node: str) -> None:
        """Post a Binding; where the hook lets it pass, the pod is bound."""
        document = self.result.cluster.pods[pod.key]
        body = review(
            _BINDING, binding_object(document, node), {"username": SCHEDULER, "groups": []}
        )
        response = response_of(await self._webhook.binder.bind(body))
        self._snapshot = None
        if not response["allowed"]:
            return
        binding = patched(binding_object(document, node), operations_of(response))
        metadata = {
            **document["metadata"],
            "annotations": {
                **document["metadata"].get("annotations", {}),
                **binding["metadata"].get("annotations", {}),
            },
        }
        spec = {**document["spec"], "nodeName": node}
        self._store(pod.key, {**document, "metadata": metadata, "spec": spec})
        del self._waiting[pod.key]
        self._bound[pod.key] = pod
        self._time.after(STARTS_AFTER, partial(self._start, pod))

    async def _start(self, pod: AskingPod) -> None:
        """Let the containers of a bound pod run, to their end where they have one."""
        document = self.result.cluster.pods.get(pod.key)
        if document is None or pod.key not in self._bound:
            return
        self._store(pod.key, {**document, "status": {"phase": "Running", "conditions": []}})
        node = str(document["spec"]["nodeName"])
        entry = self._entry(node, pod)
        if entry is not None:
            self._nodes.allocate(node, entry)
            self._time.after(SEEN_AFTER, partial(self._nodes.see_started, node, entry))
        if pod.workload.minutes is not None:
            self._time.after(pod.workload.minutes * 60, partial(self._end, pod))

    async def _end(self, pod: AskingPod) -> None:
        if self._bound.get(pod.key) is pod:
            document = self.result.cluster.pods[pod.key]
            self._store(pod.key, {**document, "status": {"phase": "Succeeded", "conditions": []}})
            del self._bound[pod.key]
            await self._release(pod)

    async def _remove(self, pod: AskingPod) -> None:
        """Delete a pod, whatever it is doing."""
        self._waiting.pop(pod.key, None)
        self._bound.pop(pod.key, None)
        if pod.key in self.result.cluster.pods:
            self._store(pod.key, None)
        await self._release(pod)

    async def _delete(self, owner: str) -> None:
        """Delete a workload with its pods."""
        for pod in (*self._waiting.values(), *self._bound.values()):
            if pod.owner == owner:
                await self._remove(pod)

    async def _release(self, pod: AskingPod) -> None:
        """Remove the entry of a pod that is over, and wake the scheduler.

        A sweep of the leader would do it too, but gives up waiting where the machine is busy, and
        then no two days were the same.
        """
        uid = made_uid("pod", (pod.owner, pod.number))
        for node in sorted(self.result.cluster.nodes_with_entry(uid)):
            await self._webhook.reclaimer.reclaim(node, uid)
        self._snapshot, self._freed = None, True
        self._time.after(1, self._schedule)
