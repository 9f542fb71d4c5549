"""Records of replicas: each says what it would say by itself, and costs only what is its own."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from allocator.audit.audit_log import AuditLog
from allocator.audit.line_buffer import LineBuffer, LineEnd
from allocator.audit.record import Component
from allocator.audit.record_source import RecordSource, milliseconds_of
from allocator.audit.record_writer import LARGEST_BATCH
from allocator.catalog.vocabularies import Vocabulary
from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import Settings
from allocator.model.decision import ModeChoice, ModeSource
from allocator.model.gpu import Snapshot
from allocator.model.request import Filters, Mode, Priority
from allocator.request.admitted import Asked
from tests.builders.model import A100_40, T4, nodes_of, snapshot
from tests.builders.passes import with_fields
from tests.builders.pods import MEMORY, NUMBER, Json, container, pod, received
from tests.harness.records import strict_record
from tests.properties.test_hostile_reviews import review
from tests.unit.webhook.admission.test_audit_record import ODD
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.admission.decide import decide
from webhook.admission.outcome import GpusHidden, Rewritten
from webhook.records.pass_records import LOOKS, PassRecords
from webhook.replicas.decided_pod import LARGEST_END, LARGEST_OWN, DecidedPass, DecidedPod
from webhook.replicas.recent_decisions import patched_pod
from webhook.replicas.replica_records import (
    MOST_BYTES,
    MOST_TAIL_BYTES,
    ReplicaRecords,
    lone_record,
)
from webhook.replicas.surroundings import PassContext
from webhook.review.admission_review import NotAReviewError, UserInfo, parse
from webhook.review.json_patch import encoded
from webhook.serve.admission import PodHandler
from webhook.serve.metrics import WebhookMetrics

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
EMPTY = Snapshot(version="1")
FLEETS = {
    "empty": EMPTY,
    "t4": snapshot(nodes_of(2, T4)),
    "mixed": snapshot(nodes_of(2, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n1")),
}
DIGESTS = {"empty": "", "t4": "e" * 32, "mixed": "f" * 32}
CALLERS = {"nothing": (), "path": ("path",)}


@dataclass(slots=True)
class Lone:
    """Takes records that are made by themselves."""

    records: list[Mapping[str, Any]] = field(default_factory=list)

    def remember(self, record: Mapping[str, Any], /) -> None:
        self.records.append(record)


class Kept:
    def __init__(self) -> None:
        self.data = b""

    def write(self, lines: LineBuffer, /) -> None:
        self.data += b"".join(lines.chunks())


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What a review meets; the defaults are those of most."""

    fleet: str = "mixed"
    settings: str = "s"
    caller: str = "path"
    age: float | None = 1.5


USUAL = Surroundings()
Reviewed = tuple[bytes, Surroundings]


def whole(end: LineEnd) -> bytes:
    """Return *end* in one piece."""
    return end.own + end.tail


@dataclass(slots=True)
class Webhook:
    """Two reviewers of the same pods: one makes each record by itself."""

    journal: AuditLog = field(init=False)
    kept: Kept = field(default_factory=Kept)
    now: Surroundings = field(default_factory=Surroundings)
    made: list[tuple[bytes, LineEnd]] = field(default_factory=list)
    replicas: ReplicaRecords | None = None
    looks: int = 0  # at the fleet

    def handler(self, *, shares: bool, replicas: ReplicaRecords | None = None) -> PodHandler:
        self.journal = AuditLog((self.kept,), dropped=self._drop)
        source = RecordSource(Component.WEBHOOK, instance="w", version="1", caller=self._caller)
        self.replicas = (
            ReplicaRecords(self._remember, source, lone=self.journal, defer=self.journal.defer)
            if shares
            else replicas
        )
        return PodHandler(
            view=self.view,
            records=PassRecords(
                self.journal,
                source,
                fleet_digest=self._fleet_digest,
                defer=self.journal.defer,
                replicas=self.replicas,
                now=lambda: milliseconds_of(NOON) * 1_000_000,
            ),
            metrics=WebhookMetrics(version="0"),
            ticks=lambda: 0.0,
        )

    def view(self, _: str) -> AdmissionView:
        """Return what a decision rests on now."""
        return AdmissionView(
            context=AdmissionContext(
                settings=Settings(), snapshot=FLEETS[self.now.fleet], host_paths=True
            ),
            settings_digest=self.now.settings,
            age=self.now.age,
        )

    def _fleet_digest(self, _: Snapshot, __: Sequence[Vocabulary], ___: int) -> str:
        self.looks += 1
        return DIGESTS[self.now.fleet]

    def _caller(self) -> tuple[str, ...]:
        return CALLERS[self.now.caller]

    def _drop(self) -> None:
        raise AssertionError("dropped")

    def _remember(self, start: bytes, end: LineEnd) -> None:
        assert len(start) <= LARGEST_OWN
        assert end.size == len(whole(end)) <= LARGEST_END
        self.made.append((start, end))
        self.journal.remember_parts(start, end)

    def lines(self, reviews: Sequence[Reviewed], *, shares: bool) -> list[Json]:
        """Return the records of *reviews* by the uid of each, without their own identifiers."""

        async def play() -> None:
            handler = self.handler(shares=shares)
            for body, surroundings in reviews:
                self.now = surroundings
                with contextlib.suppress(NotAReviewError):  # half a character is no JSON
                    handler.mutate(body)
            task = asyncio.create_task(self.journal.run())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(play())
        lines = self.kept.data.splitlines()
        for line in lines:
            strict_record(line)
        records = [orjson.loads(line) for line in lines]
        around = {json.loads(body)["request"]["uid"]: now for body, now in reviews}
        for one in records:
            now = around[one["review"]]
            assert (one["settings"], one["caller"]) == (now.settings, [*CALLERS[now.caller]])
            if one["outcome"] == "rewritten":
                assert one.get("snapshot", "") == DIGESTS[now.fleet]
        assert len({record.pop("id") for record in records}) == len(records)
        return sorted(records, key=lambda record: str(record["review"]))


def compare(reviews: Sequence[Reviewed]) -> Webhook:
    """Check that records are the same whether replicas share anything or not."""
    shared, alone = Webhook(), Webhook()
    assert shared.lines(reviews, shares=True) == alone.lines(reviews, shares=False)
    return shared


def asking(**metadata: object) -> Json:
    made = received(pod(container(limits={NUMBER: 1, MEMORY: 3000})))
    owner = {"kind": "ReplicaSet", "name": "r", "uid": "u-1", "controller": True}
    fields = {"generateName": "train-", "ownerReferences": [owner], **metadata}
    del made["metadata"]["name"]  # the API server draws one later
    return {**made, "metadata": {**made["metadata"], **fields}}


def reviewed(
    number: int,
    made: Json | None = None,
    surroundings: Surroundings = USUAL,
    **request: object,
) -> Reviewed:
    """Return the review with *number* of a pod."""
    fields: dict[str, Any] = {"namespace": "team-a", "operation": "CREATE", **request}
    fields.setdefault("userInfo", {"username": "amy", "groups": ["a", "b"]})
    return review(made or asking(), uid=f"r-{number:04}", **fields), surroundings


def test_replicas_share_all_but_what_is_their_own() -> None:
    """From the first on, because they are decided once."""
    webhook = compare([reviewed(n) for n in range(6)])

    rests = [end for _, end in webhook.made]
    assert [orjson.loads(start + whole(end))["review"] for start, end in webhook.made] == [
        f"r-{n:04}" for n in range(6)
    ]
    assert all(rest is rests[0] for rest in rests)
    assert len(webhook.made[0][0]) < 400


def test_what_replicas_rest_on_is_looked_for_now_and_then() -> None:
    """It is written again from time to time, also where nothing else comes for long."""
    webhook = compare([reviewed(n) for n in range(5 * LOOKS)])

    assert webhook.looks == 1 + 4
    assert len({id(end) for _, end in webhook.made}) == 1


def test_replicas_that_are_asked_for_otherwise_share_what_is_theirs_again() -> None:
    """The last review counts: those of one controller come one after another."""
    bo = {"username": "bo", "groups": ["a"]}
    other = [reviewed(n, userInfo=bo) for n in (4, 5)]
    webhook = compare([*map(reviewed, range(4)), *other])

    rests = [end for _, end in webhook.made]
    assert rests[3] is not rests[4]
    assert rests[4] is rests[5]


def test_who_has_many_groups_shares_little() -> None:
    """Their names are kept until the records are made, which is beyond what was foreseen."""
    people = {"username": "amy", "groups": [f"group-{n}" for n in range(500)]}
    webhook = compare([reviewed(n, userInfo=people) for n in range(130)])

    assert len({id(end) for _, end in webhook.made}) == 3


def test_pods_of_different_owners_share_what_they_ask_for() -> None:
    """Each is alone, but what it asks for and what it is given are encoded once."""
    owner = {"kind": "ReplicaSet", "name": "r", "controller": True}
    webhook = compare(
        [reviewed(n, asking(ownerReferences=[{**owner, "uid": f"u-{n}"}])) for n in range(5)]
    )

    assert webhook.replicas is not None
    assert webhook.replicas.parts == 1


def changed(path: str, value: object) -> Json:
    """Return a pod that asks for the same, but for one field."""
    made = asking()
    *parents, last = path.split(".")
    place: Any = made
    for name in parents:
        place = place[int(name)] if name.isdigit() else place[name]
    place[last] = value
    return made


OTHER_OWNER = {"kind": "ReplicaSet", "name": "other", "uid": "u-1", "controller": True}
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
UNLIKE: dict[str, Callable[[int], Reviewed]] = {
    "user": lambda n: reviewed(n, userInfo={"username": "bo", "groups": ["a", "b"]}),
    "groups": lambda n: reviewed(n, userInfo={"username": "amy", "groups": ["a", "c"]}),
    "groups-joined": lambda n: reviewed(n, userInfo={"username": "amy", "groups": ["a,b"]}),
    "operation": lambda n: reviewed(n, operation="UPDATE"),
    "namespace-of-the-review": lambda n: reviewed(n, namespace="team-b"),
    "name-of-the-review": lambda n: reviewed(n, name=f"train-{n}"),
    "prefix": lambda n: reviewed(n, asking(generateName="other-")),
    "name-of-the-owner": lambda n: reviewed(n, asking(ownerReferences=[OTHER_OWNER])),
    "annotation-without-effect": lambda n: reviewed(n, asking(annotations={"a": "b"})),
    "annotations-absent": lambda n: reviewed(n, changed("metadata.annotations", None)),
    "variables": lambda n: reviewed(
        n, changed("spec.containers.0.env", [{"name": "A", "value": "b"}])
    ),
    "no-variables": lambda n: reviewed(n, changed("spec.containers.0.env", None)),
    "volumes": lambda n: reviewed(n, changed("spec.volumes", [{"name": "v"}])),
    "another-container": lambda n: reviewed(
        n, changed("spec.initContainers", [container("first", env=[VOID])])
    ),
    "scheduler": lambda n: reviewed(n, changed("spec.schedulerName", "volcano")),
    "priority": lambda n: reviewed(
        n, asking(annotations={"vgpu-admission.io/priority": "low", "a": "b"})
    ),
    "an-earlier-pass": lambda n: reviewed(
        n, asking(annotations={"vgpu-admission.io/asked": "{}", "volcano.sh/vgpu-mode": "mig"})
    ),
    "settings": lambda n: reviewed(n, surroundings=Surroundings(settings="t")),
    "fleet": lambda n: reviewed(n, surroundings=Surroundings(fleet="t4")),
    "no-fleet": lambda n: reviewed(n, surroundings=Surroundings(fleet="empty")),
    "caller": lambda n: reviewed(n, surroundings=Surroundings(caller="nothing")),
    "age": lambda n: reviewed(n, surroundings=Surroundings(age=7.25)),
    "no-age": lambda n: reviewed(n, surroundings=Surroundings(age=None)),
    "hostile-name": lambda n: reviewed(n, asking(name='"},{"kind":"\\\u202e\x1b[2J')),
    "long-prefix": lambda n: reviewed(n, asking(generateName="x" * 300)),
    "long-name-of-the-owner": lambda n: reviewed(
        n, asking(ownerReferences=[{**OTHER_OWNER, "name": "x" * 254}])
    ),
    "wide-names": lambda n: reviewed(n, asking(name=253 * "\U0001f600", uid=253 * "\U0001f600")),
    "long-name": lambda n: reviewed(n, asking(name="x" * 5000)),
    "hostile-uid": lambda n: reviewed(n, asking(uid='","mode":"mig')),
}


@pytest.mark.parametrize("unlike", UNLIKE.values(), ids=UNLIKE)
def test_a_pod_that_differs_in_one_thing_has_a_record_of_its_own(
    unlike: Callable[[int], Reviewed],
) -> None:
    """Whichever was kept first, and however often each comes."""
    compare([*map(reviewed, range(3)), unlike(3), reviewed(4), unlike(5), unlike(6), reviewed(7)])
    compare([unlike(0), *map(reviewed, range(1, 4)), unlike(4)])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "name": ODD,
                "generateName": ODD,
                "uid": ODD,
                "annotations": st.dictionaries(ODD, ODD, max_size=2),
                "ownerReferences": st.just([{"kind": "Job", "name": "x" * 90, "uid": "u"}] * 5),
            },
        ),
        min_size=1,
        max_size=3,
    ),
    st.fixed_dictionaries({"username": ODD, "groups": st.lists(ODD, max_size=20)}),
)
def test_whatever_a_tenant_writes_records_are_the_same(
    pods: list[Json], people: dict[str, object]
) -> None:
    """Too long, unprintable, or quoting its way out."""
    made = [asking(**metadata) for metadata in pods]
    compare([reviewed(n, made[n % len(made)], userInfo=people) for n in range(4 * len(made))])


def context_of(step: str, program: tuple[str, str, str] = ("webhook", "w", "1")) -> PassContext:
    return PassContext(
        program,
        caller=CALLERS[USUAL.caller],
        step=step,
        settings=USUAL.settings,
        snapshot=DIGESTS[USUAL.fleet],
    )


def decision_of(body: bytes) -> DecidedPass:
    """Return what a reviewer has recorded of one review."""
    view = Webhook().view("team-a")
    reviewed = parse(body)
    return DecidedPass(
        request=reviewed.request,
        decided=patched_pod(reviewed.pod, decide(reviewed.pod, view.context)),
        context=context_of("mutate"),
        at=milliseconds_of(NOON),
        seconds=0.0,
        age=USUAL.age,
    )


def rewritten(decision: DecidedPass) -> Rewritten:
    outcome = decision.decided.outcome
    assert isinstance(outcome, Rewritten)
    return outcome


ONE = decision_of(reviewed(1)[0])
OUTCOME = rewritten(ONE)


def with_outcome(**fields: object) -> DecidedPass:
    """Return the same pass with another outcome, and the same patch."""
    return with_fields(
        ONE, decided=DecidedPod(structs.replace(OUTCOME, **fields), ONE.decided.patch)
    )


COSTS = OUTCOME.choice.mode_costs
ASKING = OUTCOME.request.containers[0]
EARLIER = ModeChoice(Mode.MIG, ModeSource.ONLY, "because")
RECORDED = OUTCOME.recorded
assert RECORDED is not None


def both(**fields: bool) -> Mapping[str, object]:
    """Return what differs where a pod asks for something else, and is given what it asks for."""
    assert RECORDED is not None
    request = structs.replace(RECORDED.request, **fields)
    return {"request": request, "recorded": replace(RECORDED, request=request)}


CHANGES: dict[str, Mapping[str, object]] = {
    "digest": {"digest": "another"},
    "warnings": {"warnings": ("take care",)},
    "mode": {"choice": structs.replace(OUTCOME.choice, mode=Mode.MEMORY_ONLY)},
    "source": {"choice": structs.replace(OUTCOME.choice, source=ModeSource.ONLY)},
    "why": {"choice": structs.replace(OUTCOME.choice, why="because")},
    "fewer-costs": {"choice": structs.replace(OUTCOME.choice, mode_costs=COSTS[1:])},
    "costs": {
        "choice": structs.replace(
            OUTCOME.choice, mode_costs=(structs.replace(COSTS[0], cost=7), *COSTS[1:])
        )
    },
    "mode-asked": {"asked": Asked(mode="mig")},
    "given": {
        "request": structs.replace(OUTCOME.request, containers=(structs.replace(ASKING, count=9),))
    },
    "priority": {"request": structs.replace(OUTCOME.request, priority=Priority.HIGH)},
    "constraints": {"request": structs.replace(OUTCOME.request, filters=Filters(models=("A100",)))},
    "asked": {
        "recorded": replace(
            RECORDED, request=structs.replace(RECORDED.request, filters=Filters(uuids=("G",)))
        )
    },
    "profile": {
        "recorded": replace(RECORDED, request=structs.replace(RECORDED.request, profile="1g.5gb"))
    },
    "one-numa": both(one_numa=True),
    "links": both(ignore_links=True),
    "library": both(library_off=True),
    "policy": {"recorded": replace(RECORDED, namespace=NamespacePolicy(min_isolation="mig"))},
    "earlier": {"recorded": replace(RECORDED, earlier=EARLIER)},
    "final": {"recorded": replace(RECORDED, final=Mode.MIG)},
}


def fresh(decision: DecidedPass, **fields: object) -> DecidedPass:
    """Return the same pass with other *fields*, of which no record has been made."""
    decided = DecidedPod(decision.decided.outcome, decision.decided.patch)
    return with_fields(decision, decided=decided, **fields)


def deferred_records(made: list[bytes], later: list[Callable[[], None]]) -> ReplicaRecords:
    """Return what leaves to *later* what makes records, and adds them to *made*."""

    def defer(make: Callable[[], None], size: int) -> None:
        if size < LARGEST_BATCH:
            later.append(make)
        else:
            make()

    return ReplicaRecords(
        lambda start, end: made.append(start + whole(end)),
        RecordSource(Component.WEBHOOK),
        lone=Lone(),
        defer=defer,
    )


@pytest.mark.parametrize(
    "ops",
    [
        [{"op": "add", "path": "/metadata/annotations/a", "value": "b"}],
        [{"op": "add", "path": "/spec/schedulerName", "value": "volcano"}],
    ],
    ids=["annotations", "others"],
)
def test_a_patch_of_one_kind_is_recorded(ops: list[dict[str, Any]]) -> None:
    """Where an earlier pass wrote the rest."""
    made = recorded(with_fields(ONE, decided=DecidedPod(OUTCOME, encoded(ops))))

    assert orjson.loads(b'{"schema":' + made[0])["changes"] == ops


def patched(ops: list[dict[str, Any]]) -> DecidedPass:
    """Return the same pass with another patch."""
    return with_fields(ONE, decided=DecidedPod(OUTCOME, encoded(ops)))


def test_patches_of_one_size_are_told_apart() -> None:
    """Those that are equal share their JSON."""
    names = ["volcano", "another", "volcano", "another", "volcano"]
    ops = [[{"op": "add", "path": "/spec/schedulerName", "value": name}] for name in names]
    made = [orjson.loads(b'{"schema":' + one) for one in recorded(*map(patched, ops))]

    assert [one["changes"] for one in made] == ops


def test_patches_that_are_kept_are_bounded() -> None:
    """Containers have many sizes, which a tenant chooses."""
    ends: list[LineEnd] = []
    records = ReplicaRecords(
        lambda _, end: ends.append(end), RecordSource(Component.WEBHOOK), lone=Lone()
    )
    ops = [{"op": "add", "path": "/spec/schedulerName", "value": "volcano"}]
    for length in (0, 0, *range(1000)):
        path = "/spec/containers/0/env/" + "0" * length
        assert records.record(patched([*ops, {"op": "add", "path": path, "value": "x"}]), 1)
        assert records.size <= MOST_TAIL_BYTES + 64 * 1024

    assert ends[0].tail is ends[1].tail is not ends[3].tail


def test_a_review_is_not_held_once_its_record_is_made() -> None:
    """Its end is kept, and the pod would be."""
    decision = fresh(ONE)
    records = ReplicaRecords(lambda _, __: None, RecordSource(Component.WEBHOOK), lone=Lone())

    assert records.record(decision, 1)
    assert decision.decided.end is not None
    assert decision.decided.end.decision is None


def test_records_are_made_some_at_a_time() -> None:
    """In their order: when they are asked for, or when they are many."""
    made, later = list[bytes](), list[Callable[[], None]]()
    records = deferred_records(made, later)

    def ages() -> list[float]:
        return [orjson.loads(line)["snapshot_age_seconds"] for line in made]

    for number in range(3):
        assert records.record(fresh(ONE, age=float(number)), 1)
    assert (made, len(later)) == ([], 1)
    later.pop()()
    assert ages() == [0, 1, 2]
    for number in range(3, 200):
        assert records.record(fresh(ONE, age=float(number)), 1)
        assert number - len(made) < 64
    for make in later:
        make()
    assert ages() == list(range(200))


def test_a_record_that_cannot_be_made_costs_no_other() -> None:
    """It fails where it is counted, and those after it are made."""
    made, later = list[bytes](), list[Callable[[], None]]()
    records = deferred_records(made, later)
    for at in (0, 10**16, 10**16, 1000, 2000):  # milliseconds; some are beyond the calendar
        assert records.record(fresh(ONE, at=at), 1)

    failed = 0
    while later:
        try:
            later.pop(0)()
        except (OverflowError, ValueError):
            failed += 1
    assert failed == 2
    assert [orjson.loads(line)["at"][17:19] for line in made] == ["00", "01", "02"]


def test_a_program_may_have_any_name() -> None:
    """The record is JSON all the same."""
    made: list[bytes] = []
    records = ReplicaRecords(
        lambda start, end: made.append(start + whole(end)),
        RecordSource(Component.WEBHOOK),
        lone=Lone(),
    )
    context = context_of("mutate", ("webhook", 'w"\x1b\ud800', "1"))

    assert records.record(fresh(ONE, context=context), 1)
    assert orjson.loads(made[0])["instance"] == 'w"\ufffd\ufffd'


def test_passes_share_nothing() -> None:
    """A pod may have containers added later, by a pass of its own."""
    made = recorded(ONE, ONE, ONE, with_fields(ONE, context=context_of("ephemeral")))

    assert b'"step":"mutate"' in made[2]
    assert b'"step":"ephemeral"' in made[3]


@given(
    st.floats(0, 1e7, allow_nan=False),
    st.none() | st.floats(0, 1e7, allow_nan=False),
    st.integers(0, 4_000_000_000_000),
)
def test_numbers_of_a_record_are_those_of_its_pass(
    seconds: float, age: float | None, at: int
) -> None:
    """To microseconds and milliseconds, also where they are long."""
    made: list[bytes] = []
    records = ReplicaRecords(
        lambda start, end: made.append(start + whole(end)),
        RecordSource(Component.WEBHOOK),
        lone=Lone(),
    )
    assert records.record(with_fields(ONE, seconds=seconds, age=age, at=at), 1)
    found = orjson.loads(made[0])

    assert found["duration_seconds"] == pytest.approx(seconds, abs=6e-7)
    assert found.get("snapshot_age_seconds") == pytest.approx(age, abs=6e-4)
    assert milliseconds_of(datetime.fromisoformat(found["at"])) == at


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_decisions_that_differ_share_nothing(change: Mapping[str, object]) -> None:
    """In each thing that a record tells of a decision, also with equal digests."""
    other = with_outcome(**change)
    made = recorded(ONE, ONE, ONE, other, other, other, ONE, other)

    assert made[0] != made[3]
    assert made == [made[0]] * 3 + [made[3]] * 3 + [made[0], made[3]]


def recorded(*decisions: DecidedPass) -> list[bytes]:
    """Return the ends of the records of *decisions*."""
    made: list[bytes] = []
    source = RecordSource(Component.WEBHOOK)
    records = ReplicaRecords(lambda _, end: made.append(whole(end)), source, lone=Lone())
    # None has an end yet, which another test left behind.
    unrecorded = {id(one): fresh(one) for one in decisions}
    for decision in decisions:
        assert records.record(unrecorded[id(decision)], 1)
    return made


def with_policy(policy: NamespacePolicy) -> Mapping[str, object]:
    assert RECORDED is not None
    return {"recorded": replace(RECORDED, namespace=policy)}


def with_count(count: int) -> Mapping[str, object]:
    container_request = structs.replace(ASKING, count=count)
    return {"request": structs.replace(OUTCOME.request, containers=(container_request,))}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            with_policy(NamespacePolicy(min_isolation="mig")),
            with_policy(NamespacePolicy(min_isolation="hami-core")),
            id="policies",
        ),
        pytest.param(with_count(8), with_count(9), id="given"),
    ],
)
def test_two_unusual_decisions_share_nothing(
    one: Mapping[str, object], other: Mapping[str, object]
) -> None:
    """Neither is like most, and neither is like the other."""
    first, second = with_outcome(**one), with_outcome(**other)
    made: list[bytes] = []
    source = RecordSource(Component.WEBHOOK)
    records = ReplicaRecords(lambda _, end: made.append(whole(end)), source, lone=Lone())

    for decision in (first, first, first, second, second, first):
        assert records.record(decision, 1)

    assert made == [made[0]] * 3 + [made[3]] * 2 + [made[0]]
    assert made[0] != made[3]


def test_what_is_kept_is_bounded() -> None:
    """However many amounts a tenant thinks of."""
    records = ReplicaRecords(lambda _, __: None, RecordSource(Component.WEBHOOK), lone=Lone())
    handler = Webhook().handler(shares=False, replicas=records)
    for memory in range(1000, 6000):
        spec = received(pod(container(limits={NUMBER: 1, MEMORY: memory})))["spec"]
        handler.mutate(reviewed(memory, {**asking(), "spec": spec})[0])

    assert MOST_BYTES // 2 < records.size <= MOST_BYTES + MOST_TAIL_BYTES
    assert 500 < records.parts < 4900


def test_a_patch_that_is_recorded_in_part_is_told_apart_too() -> None:
    """Equal records would not mean equal patches, so the patches are compared."""
    many = [container(f"c{n}", limits={NUMBER: 1, MEMORY: 10}) for n in range(12)]
    compare([reviewed(n, received(pod(*many))) for n in range(4)])


def test_what_is_large_is_recorded_by_itself() -> None:
    """A patch beyond 16 KiB is neither compared nor kept."""
    many = [container(f"c{n}", limits={NUMBER: 1, MEMORY: 10}) for n in range(40)]
    large = asking()
    large["spec"]["containers"] = received(pod(*many))["spec"]["containers"]
    webhook = compare([reviewed(n, large) for n in range(4)])

    assert webhook.made == []


def test_what_is_too_long_for_a_line_is_recorded_by_itself() -> None:
    """There it is cut; so is the record of a replica that came before that was known."""
    made, later, lone = list[bytes](), list[Callable[[], None]](), Lone()
    records = ReplicaRecords(
        lambda start, end: made.append(start + whole(end)),
        RecordSource(Component.WEBHOOK),
        lone=lone,
        defer=lambda make, _: later.append(make),
    )
    large = with_outcome(warnings=("w" * 900,) * 16)
    again = structs.replace(large.request, uid="r-again", name="again")

    assert records.record(with_outcome(warnings=("w" * 900,) * 9), 1)
    assert records.record(large, 1)
    end = large.decided.end
    assert end is not None
    assert records.record_replica(again, end, at=large.at + 5, seconds=2.0, age=3.0)
    later.pop()()

    assert len(made) == 1
    assert large.decided.end is None
    source = RecordSource(Component.WEBHOOK)
    replica = with_fields(large, request=again, at=large.at + 5, seconds=2.0, age=3.0)
    expected = [lone_record(one, source) for one in (large, replica)]
    assert [without_id(one) for one in lone.records] == [without_id(one) for one in expected]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"namespace": "n" * 253}, True),
        ({"namespace": "n" * 600}, False),
        ({"operation": "o" * 600}, False),
        ({"user_info": UserInfo("u" * 600)}, False),
        ({"user_info": UserInfo(groups=("g" * 40,) * 16)}, False),
        ({"user_info": UserInfo(groups=("g",) * 16)}, True),
        ({"user_info": UserInfo(groups=("",) * 17)}, False),
    ],
)
def test_an_end_that_is_large_is_not_kept(fields: Mapping[str, Any], *, kept: bool) -> None:
    """What is kept was counted before a review came with many groups."""
    decision = fresh(ONE, request=structs.replace(ONE.request, **fields))
    made: list[bytes] = []
    records = ReplicaRecords(
        lambda start, _: made.append(start), RecordSource(Component.WEBHOOK), lone=Lone()
    )

    assert records.record(decision, 1)
    assert (len(made), decision.decided.end is not None) == (1, kept)


def test_reviews_that_wait_for_their_records_are_few_or_small() -> None:
    """Each is held until then, with all that a tenant wrote."""
    made, later = list[bytes](), list[Callable[[], None]]()
    records = deferred_records(made, later)

    for _ in range(3):
        assert records.record(fresh(ONE), 512 * 1024)
    assert len(made) == 3
    assert records.record(fresh(ONE), 512 * 1024)
    assert len(made) == 3


def test_a_record_that_cannot_be_made_fails_no_review() -> None:
    """Also not that of the pod with which there are enough to make them."""
    dropped: list[None] = []
    journal = AuditLog((), dropped=lambda: dropped.append(None))
    made: list[bytes] = []
    records = ReplicaRecords(
        lambda start, _: made.append(start),
        RecordSource(Component.WEBHOOK),
        lone=Lone(),
        defer=journal.defer,
    )
    for number in range(200):
        assert records.record(fresh(ONE, at=10**16 if number % 50 == 7 else ONE.at), 1)

    for _ in range(4):  # what is left
        journal.defer(lambda: None, LARGEST_BATCH)

    assert (len(dropped), len(made)) == (4, 196)


def test_large_reviews_wait_for_few_others() -> None:
    """Their size is that of the review, most of which nobody reads."""
    webhook = Webhook()
    handler = webhook.handler(shares=True)
    pods = [{**asking(), "status": {"message": "x" * 400_000}} for _ in range(3)]

    for number, one in enumerate(pods):
        assert webhook.made == []
        handler.mutate(reviewed(number, one)[0])
    assert len(webhook.made) == 3


def test_a_pod_that_asks_for_nothing_is_recorded_by_itself() -> None:
    """Most pods of a cluster are such, and share nothing that would be kept."""
    made, later = list[bytes](), list[Callable[[], None]]()
    hidden = DecidedPod(GpusHidden(OUTCOME.intent), ONE.decided.patch)

    assert not deferred_records(made, later).record(with_fields(ONE, decided=hidden), 1)
    assert (later, hidden.end) == ([], None)


def test_names_that_are_too_long_leave_nothing_behind() -> None:
    """Such a pod is recorded by itself, and its review is not held."""
    made, later = list[bytes](), list[Callable[[], None]]()
    decision = fresh(ONE, request=structs.replace(ONE.request, name="n" * 254))

    assert not deferred_records(made, later).record(decision, 1)
    assert (later, decision.decided.end) == ([], None)


def without_id(record: Mapping[str, Any]) -> Json:
    """Return *record* as it is read, without its identifier."""
    return {**orjson.loads(orjson.dumps(record)), "id": ""}
