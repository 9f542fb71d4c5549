"""Whoever wants to bind pods: schedulers that ask first, and those that do not."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from allocator.ledger.commit import remove_entries
from allocator.ledger.ledger import parse_ledger
from kube.errors import KubeError, UnreachableError
from tests.builders.gpunodes import NOON, Json
from tests.model.cluster import GPU_NODES, World, over
from tests.model.device_lists import named, told_truly
from tests.model.history import DRY
from tests.model.preemption import guarded, judge, judge_budgets
from tests.model.replicas import Fault, Replica, Task, outcome, patch_of, review
from tests.model.requests import names_of

NOMINATED: Final = 0.6  # how often a scheduler still knows for whom it made room


@dataclass(slots=True, kw_only=True)
class Schedulers:
    """All schedulers of one run; ``parked`` tells at which change of the world a pod gave up.

    ``tally`` counts Bindings that landed, those with a wish by what became of it, and victims.
    """

    world: World
    fault: Fault
    replicas: list[Replica]
    attempts: "list[asyncio.Task[None]]" = field(default_factory=list)
    parked: dict[str, int] = field(default_factory=dict)
    peace: bool = False  # nothing goes wrong any more
    unanswered_in_peace: int = 0
    tally: Counter[str] = field(default_factory=Counter)

    def bind_something(self) -> None:
        """Begin to bind any pod to any node."""
        rng = self.world.rng
        pod = self.world.pods[rng.choice(sorted(self.world.pods))]
        binding = binding_of(pod, rng.choice(names_of(self.world)))
        if rng.random() < 0.5:
            del binding["metadata"]["uid"]
        self.begin(self.attempt(binding, dry=rng.random() < 0.05))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.attempts.append(asyncio.ensure_future(work))

    async def attempt(self, binding: Json, *, dry: bool = False) -> None:
        """Bind one pod as a scheduler does: the hook, up to three times, then the registry."""
        world, asked_at = self.world, self.world.loop.time()
        for _ in range(3):
            answer = await self.reviewed(binding, dry=dry)
            if answer is not None:
                break
            await asyncio.sleep(1)
        else:
            self.unanswered_in_peace += self.peace
            return
        if not answer["allowed"] or dry:
            return
        ops = patch_of(answer)
        if self.fault.careless:
            ops = [op for op in ops if op["path"] != "/metadata/uid"]
        if self.fault.tidy:
            name, target = binding["metadata"]["name"], binding["target"]["name"]
            await self.release_elsewhere(world.pods[name]["metadata"]["uid"], target)
        with contextlib.suppress(UnreachableError):
            await world.call(lambda: self.land(binding, ops, asked_at))

    def land(self, binding: Json, ops: list[Json], asked_at: float) -> bytes:
        """Be the registry, and look at what the pod was told in that moment (rule 1)."""
        name = binding["metadata"]["name"]
        before = self.world.pods.get(name)
        answer = self.world.land(binding, ops, asked_at=asked_at)
        if before is not None and answer == b"201":
            self.tally["landed"] += 1
            told_truly(self.world, self.world.pods[name])
            brought = named(binding) or named(before)
            if brought:
                same = brought == named(self.world.pods[name])
                self.tally["followed" if same else "exchanged"] += 1
        return answer

    async def release_elsewhere(self, uid: str, target: str) -> None:
        """Remove what a pod was promised on other nodes, on the version that was just read."""
        for name in names_of(self.world):
            with contextlib.suppress(KubeError):
                path = f"{GPU_NODES}{name}"
                ledger = parse_ledger(orjson.loads(await self.world.get(path)))
                if name != target and ledger.entry(uid) is not None:
                    await self.world.json_patch(path, remove_entries(ledger, uid))

    async def reviewed(self, binding: Json, *, dry: bool) -> Json | None:
        """Ask one replica, sometimes both; ``None`` where no answer came."""
        DRY.set(dry)
        body = review(binding, dry=dry)
        asked = self.world.rng.sample(self.replicas, self.world.rng.choice([1, 1, 1, 2]))
        tasks = [under_way(one, one.binder.bind(body)) for one in asked]
        await asyncio.wait(tasks)
        found = [outcome(task) for task in tasks if not task.cancelled()]
        answers = [orjson.loads(body)["response"] for body in found if body is not None]
        return self.world.rng.choice(answers) if answers else None

    def bypass(self) -> None:
        """Bind a pod past the hook, as where its namespace has lost the label."""
        rng = self.world.rng
        name, target = rng.choice(sorted(self.world.pods)), rng.choice(names_of(self.world))
        pod = self.world.pods[name]
        binding = binding_of(pod, target)
        del binding["metadata"]["uid"]
        if not pod["spec"].get("nodeName"):
            self.world.bypassed.add(pod["metadata"]["uid"])
            self.world.past.excused.add((target, pod["metadata"]["uid"]))
            self.world.land(binding, [], asked_at=self.world.loop.time())

    def waiting(self) -> list[Json]:
        """Return the pods without a node, the most important first."""
        pods = [pod for pod in self.world.pods.values() if not pod["spec"].get("nodeName")]
        return sorted(pods, key=lambda pod: -pod["spec"]["priority"])

    def ask(self, one: Replica, pod: Json) -> Sequence[str]:
        """Ask a replica which nodes take a pod, and park it if that is none."""
        question = {"Pod": pod, "NodeNames": names_of(self.world)}
        found: list[str] = orjson.loads(one.sight.extender.filter(orjson.dumps(question)))[
            "NodeNames"
        ]
        self.parked.pop(pod["metadata"]["uid"], None)
        if not found:
            self.parked[pod["metadata"]["uid"]] = self.world.stirred
        return found

    def schedule(self, one: Replica) -> None:
        """Take one turn of kube-scheduler: filter, then bind, or else preempt."""
        waiting = self.waiting()
        if not waiting:
            return
        pod = waiting[0] if self.world.rng.random() < 0.5 else self.world.rng.choice(waiting)
        fitting = self.ask(one, pod)
        if fitting:
            self.begin(self.attempt(binding_of(pod, self.world.rng.choice(fitting))))
        else:
            self.preempt(one, pod)

    def preempt(self, one: Replica, pod: Json) -> None:
        """Evict for a pod whom a replica names on one node, as kube-scheduler does."""
        proposals = self.proposals(pod)
        if not proposals or self.patient(pod):
            return
        broken = {name: sum(map(guarded, uids)) for name, uids in proposals.items()}
        offers = {
            name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": broken[name]}
            for name, uids in proposals.items()
        }
        question = {"Pod": pod, "NodeNameToMetaVictims": offers}
        answer = orjson.loads(one.sight.extender.preempt(orjson.dumps(question)))
        found = answer["NodeNameToMetaVictims"]
        named = {name: [meta["UID"] for meta in there["Pods"]] for name, there in found.items()}
        told = {name: there.get("NumPDBViolations", 0) for name, there in found.items()}
        if self.fault.greedy:
            named = {name: self.weaker(pod, name) for name in named}
        if self.fault.reckless:
            told = {name: len(uids) for name, uids in named.items()}
        judge(one.sight, pod, proposals=proposals, named=named)
        judge_budgets(pod, before=broken, after=told)
        if named:
            self.evict(pod, *self.world.rng.choice(sorted(named.items())))

    def weaker(self, pod: Json, node: str) -> list[str]:
        """Return whom a scheduler may evict from a node: who is there and matters less."""
        return [
            other["metadata"]["uid"]
            for other in self.world.pods.values()
            if other["spec"].get("nodeName") == node
            and not over(other)
            and other["spec"]["priority"] < pod["spec"]["priority"]
        ]

    def proposals(self, pod: Json) -> Mapping[str, Sequence[str]]:
        """Return for each node some who are weaker there: the scheduler knows only sums."""
        rng = self.world.rng
        found = {name: self.weaker(pod, name) for name in names_of(self.world)}
        return {n: rng.sample(uids, rng.randint(1, len(uids))) for n, uids in found.items() if uids}

    def patient(self, pod: Json) -> bool:
        """Say whether somebody leaves already where room is made for the pod."""
        node = pod.get("status", {}).get("nominatedNodeName", "")
        leaving = {
            other["metadata"]["uid"]
            for other in self.world.pods.values()
            if "deletionTimestamp" in other["metadata"]
        }
        return not leaving.isdisjoint(self.weaker(pod, node))

    def evict(self, pod: Json, node: str, uids: Sequence[str]) -> None:
        """Delete pods, each by uid, and keep their room; one that is not there is an error."""
        there = {p["metadata"]["uid"]: p for p in self.world.pods.values()}
        if not all(there.get(uid, pod)["spec"].get("nodeName") == node for uid in uids):
            return
        for uid in uids:
            victim = there[uid]
            if "deletionTimestamp" not in victim["metadata"]:
                self.tally["preempted"] += 1
                now = (NOON + self.world.elapsed(0)).isoformat()
                metadata = {**victim["metadata"], "deletionTimestamp": now}
                self.world.place({**victim, "metadata": metadata})
        if self.world.rng.random() < NOMINATED:
            self.world.place({**pod, "status": {"nominatedNodeName": node}})

    def stuck(self, one: Replica) -> list[str]:
        """Return the pods that nobody has woken although a node takes them."""
        parked = [
            pod
            for pod in self.waiting()
            if self.parked.get(pod["metadata"]["uid"]) == self.world.stirred
        ]
        return [pod["metadata"]["uid"] for pod in parked if self.ask(one, pod)]


def binding_of(pod: Json, node: str) -> Json:
    """Write the Binding of a pod, by name and uid, to a node."""
    metadata = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    return {"metadata": metadata, "target": {"kind": "Node", "name": node}}


def under_way(one: Replica, work: Coroutine[Any, Any, Any]) -> Task:
    """Let a replica work on something, for as long as it lives."""
    task = asyncio.ensure_future(work)
    one.tasks.append(task)
    return task
