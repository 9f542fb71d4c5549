"""Audit records of what happens on this node.

They are written where something is news, as the Events are: a container that crashes gets the same
devices again, and one that is refused is tried again every ten seconds. Records that an agent would
write again after a restart are identified by their content, so a console stores them once.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from agent.deviceplugin.container_edits import ContainerEdits
from agent.mig.progress import Outcome
from agent.monitor.violation import LocalPod, ObservedUse, Violation
from agent.serve.node_events import without_numbers
from agent.share import Owner, Share
from allocator.audit.record_source import content_id
from allocator.model.untrusted import LONGEST_NAME, escaped, inert
from allocator.replay.decision_fields import device_fields
from kube.clock import SYSTEM, Clock

LONGEST_TEXT: Final = 1024  # characters


class NodeRecordWriter(Protocol):
    """Writes a record; :class:`allocator.audit.record_writer.RecordWriter` does."""

    def write(self, kind: str, fields: Mapping[str, Any], *, record_id: str = "") -> None:
        """Write a record of *kind*; with *record_id* it is stored once."""


class NodeRecords:
    """Writes the records of one node; none of its calls waits or fails."""

    def __init__(
        self,
        node: str,
        writer: NodeRecordWriter,
        *,
        digest_of: Callable[[str], str],
        clock: Clock = SYSTEM,
    ) -> None:
        """Write of *node*; *digest_of* returns the digest on the pod with a uid, or nothing."""
        self._node = node
        self._writer = writer
        self._digest_of = digest_of
        self._clock = clock
        # By the first slot of a container: what was last written, and since when it is refused.
        self._allocated: dict[str, str] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._refused_since: dict[str, tuple[str, float]] = {}
        self._failed: dict[str, str] = {}  # by GPU, the failure that was last written
        self._started: set[tuple[str, str]] = set()  # uids of pods, ids of containers

    def write_allocation(self, slot: str, share: Share, edits: ContainerEdits) -> None:
        """Write once what a container received; *slot* is the first of its slots."""
        owner = share.owner
        devices = [device_fields(grant) for grant in share.grants]
        for grant, device, shown in zip(share.grants, devices, edits.shown, strict=False):
            if grant.placed is not None:
                device["instance"] = escaped(shown)
        key = self._id("allocated", owner.uid, owner.container, json.dumps(devices))
        if self._allocated.get(slot) == key:
            return
        self._allocated[slot] = key
        uid, since = self._refused_since.pop(slot, ("", 0.0))
        waited = round(self._clock.monotonic() - since, 3) if uid == owner.uid else None
        fields = {
            "container": escaped(owner.container),
            "devices": devices,
            "waited_seconds": waited,
        }
        self._write("allocated", fields, _of_owner(owner), record_id=key)

    def write_refusal(self, slot: str, owner: Owner, why: str) -> None:
        """Write why a container cannot start, unless only numbers have changed since."""
        last = owner.uid, f"{owner.container}: {without_numbers(why)}"
        if self._refused_since.get(slot, ("", 0.0))[0] != owner.uid:
            self._refused_since[slot] = owner.uid, self._clock.monotonic()
        if self._refused.get(slot) == last:
            return
        self._refused[slot] = last
        fields = {"container": escaped(owner.container), "text": _text(why)}
        self._write("start-refused", fields, _of_owner(owner))

    def write_reconfiguration(self, gpu: str, outcome: Outcome, note: str) -> None:
        """Write that instances of *gpu* were reconfigured, or each new reason why not."""
        done = outcome is Outcome.DONE
        failure = "" if done else without_numbers(note)
        if done or self._failed.get(gpu) != failure:
            fields = {"gpu": escaped(gpu), "done": done, "text": _text(note)}
            self._write("reconfigured", fields)
        self._failed[gpu] = failure

    def write_health(self, gpu: str, why: str) -> None:
        """Write *why* a GPU left service; empty if it is back."""
        fields = {"gpu": escaped(gpu), "healthy": not why, "text": _text(why) or None}
        self._write("health", fields)

    def write_violation(self, violation: Violation) -> None:
        """Write a violation that began."""
        fields = {
            "violation": str(violation.kind),
            "text": _text(violation.note),
            "container": escaped(violation.container) or None,
        }
        self._write("violation", fields, _of_pod(violation.pod))

    def write_eviction(self, pod: LocalPod, why: str) -> None:
        """Write that the eviction of a pod was accepted."""
        self._write("evicted", {"text": _text(why)}, _of_pod(pod))

    def write_started(self, observed: ObservedUse) -> None:
        """Write of each promised container whose processes are seen for the first time."""
        promised = {share.owner.uid for share in observed.shares}
        self._started = {key for key in self._started if key[0] in observed.pods}
        for located in observed.processes:
            cgroup = located.cgroup
            if cgroup is None or cgroup.uid not in promised or not cgroup.container:
                continue
            pod, key = observed.pods.get(cgroup.uid), (cgroup.uid, cgroup.container)
            name = "" if pod is None else pod.containers.get(cgroup.container, "")
            if pod is not None and name and key not in self._started:
                self._started.add(key)
                record_id = self._id("started", *key)
                fields = {"container": escaped(name)}
                self._write("started", fields, _of_pod(pod), record_id=record_id)

    def _id(self, *parts: str) -> str:
        return content_id(self._node, *parts)

    def _write(
        self,
        kind: str,
        fields: Mapping[str, Any],
        pod: Mapping[str, str] | None = None,
        *,
        record_id: str = "",
    ) -> None:
        about = dict(pod or {})
        digest = self._digest_of(about["pod_uid"]) if about else ""
        if digest:
            about["digest"] = escaped(digest)
        record = {"node": self._node, **about, **fields}
        self._writer.write(kind, record, record_id=record_id)


def _of_owner(owner: Owner) -> dict[str, str]:
    return _pod_fields(owner.namespace, owner.pod, owner.uid)


def _of_pod(pod: LocalPod) -> dict[str, str]:
    return _pod_fields(pod.namespace, pod.name, pod.uid)


def _pod_fields(namespace: str, name: str, uid: str) -> dict[str, str]:
    return {
        "namespace": escaped(namespace),
        "pod": escaped(name, LONGEST_NAME),
        "pod_uid": escaped(uid),
    }


def _text(text: str) -> str:
    return inert(text[:LONGEST_TEXT])
