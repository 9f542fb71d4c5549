"""Pods of jobs, as a watch tells of them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.cluster.pods import pod_informer
from allocator.groups.members import GroupPod
from allocator.request.pod_fields import decode_watched
from allocator.supernode.group_pods import GroupPods, group_pod
from tests.builders.gpunodes import NOON

GPUS = {"metax-tech.com/gpu": "8"}
JOB = {"kind": "Job", "name": "train", "uid": "owner-1", "controller": True}


def written(
    *,
    uid: str = "u1",
    limits: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
    status: str = "Pending",
    spec: dict[str, Any] | None = None,
    **metadata: Any,  # noqa: ANN401 -- any metadata
) -> bytes:
    """Return a pod of a Job as the API server sends it."""
    named = {"name": uid, "namespace": "team-a", "uid": uid, **metadata}
    owners = [JOB if owner is None else owner]
    resources = {"limits": GPUS if limits is None else limits}
    return orjson.dumps(
        {
            "metadata": {
                "creationTimestamp": "2026-11-21T12:00:00Z",
                "ownerReferences": owners,
                **named,
            },
            "spec": {"containers": [{"name": "main", "resources": resources}], **(spec or {})},
            "status": {"phase": status},
        }
    )


def seen(raw: bytes) -> GroupPod | None:
    return group_pod(decode_watched(raw), raw)


def test_a_job_is_a_pod_group_or_else_a_controller() -> None:
    """Pods of one PodGroup may have several controllers."""
    by_owner = seen(written(annotations={GROUP_SIZE_KEY: "64"}, spec={"nodeName": "n1"}))
    assert by_owner == GroupPod(
        uid="u1",
        job="team-a/owner owner-1",
        name="u1",
        size=64,
        node="n1",
        created=NOON,
        limits=(("metax-tech.com/gpu", 8),),
    )
    by_group = seen(written(annotations={"scheduling.k8s.io/group-name": "demo"}))
    assert by_group is not None
    assert by_group.job == "team-a/podgroup demo"


def test_jobs_of_two_namespaces_are_never_one() -> None:
    """A tenant may write the names of another tenant's objects into a pod."""
    other = seen(written(namespace="team-b"))
    mine = seen(written())
    assert other is not None
    assert mine is not None
    assert other.job != mine.job


@pytest.mark.parametrize(
    "raw",
    [
        written(status="Succeeded"),
        written(status="Failed"),
        written(deletionTimestamp="2026-11-21T12:00:00Z"),
        written(limits={"cpu": "1"}),
        written(owner={"kind": "Job", "uid": "owner-1"}),
        written(owner={"kind": "Job", "uid": "owner-1", "controller": False}),
        written(owner={"kind": "Job", "uid": "", "controller": True}),
    ],
)
def test_what_is_over_asks_for_nothing_or_has_no_job_is_left_out(raw: bytes) -> None:
    """None of these needs room near others."""
    assert seen(raw) is None


@pytest.mark.parametrize(
    "hostile",
    [
        {"scheduling.k8s.io/group-name": "../../x"},
        {"scheduling.k8s.io/group-name": "a" * 300},
        {"scheduling.k8s.io/group-name": ""},
        {"scheduling.k8s.io/group-name": "UPPER"},
        {"scheduling.k8s.io/group-name": "a\n"},
        {GROUP_SIZE_KEY: "9" * 100_000},
        {GROUP_SIZE_KEY: "-1"},
        {GROUP_SIZE_KEY: "0"},
        {GROUP_SIZE_KEY: "nan"},
        {GROUP_SIZE_KEY: "1e9"},
        {GROUP_SIZE_KEY: "\u0664"},
    ],
)
def test_hostile_annotations_name_neither_group_nor_size(hostile: dict[str, str]) -> None:
    """The pod is one of its controller all the same."""
    found = seen(written(annotations=hostile))
    assert found is not None
    assert (found.job, found.size) == ("team-a/owner owner-1", 0)


def test_a_time_that_cannot_be_read_is_none() -> None:
    """A pod without one is not new."""
    found = seen(written(creationTimestamp="yesterday"))
    assert found is not None
    assert found.created is None


def test_jobs_are_known_while_their_pods_are() -> None:
    """Nothing is left of a job whose last pod is gone."""
    pods = GroupPods()
    first = seen(written(uid="u1", annotations={GROUP_SIZE_KEY: "16"}))
    second = seen(written(uid="u2"))
    pods.update({"u1": first, "u2": second})
    assert pods.has_groups()
    assert {pod.uid for pod in pods.job("team-a/owner owner-1")} == {"u1", "u2"}
    assert pods.waiting_jobs(NOON) == ["team-a/owner owner-1"]

    bound = {uid: seen(written(uid=uid, spec={"nodeName": "n1"})) for uid in ("u1", "u2")}
    size = seen(written(uid="u1", spec={"nodeName": "n1"}, annotations={GROUP_SIZE_KEY: "16"}))
    pods.update({**bound, "u1": size})
    assert pods.waiting_jobs(NOON) == []
    assert pods.waiting_jobs(NOON - timedelta(seconds=1)) == ["team-a/owner owner-1"]

    pods.update({"u1": None})
    assert not pods.has_groups()
    assert pods.pod("u1") is None
    pods.update({"u2": None, "never": None})
    assert list(pods.job("team-a/owner owner-1")) == []


def test_a_bound_pod_of_unknown_age_makes_no_job_wait() -> None:
    """Nothing says that it was made lately."""
    spec = {"nodeName": "n1"}
    pod = seen(written(spec=spec, annotations={GROUP_SIZE_KEY: "16"}, creationTimestamp="?"))
    pods = GroupPods()
    pods.update({"u1": pod})

    assert pods.has_groups()
    assert pods.waiting_jobs(NOON) == []


def sized(uid: str, node: str, *, size: int = 8) -> GroupPod:
    """Return a pod that was made at noon, of the one job."""
    return GroupPod(uid=uid, job="team-a/owner j", name=uid, size=size, node=node, created=NOON)


@pytest.mark.parametrize(
    ("members", "waits"),
    [
        ([sized("u1", "n1"), sized("u2", "n2", size=0)], False),
        ([sized("u1", "n1"), sized("u2", "", size=0)], True),
        ([sized("u1", ""), sized("u2", "n2", size=0)], True),
        ([sized("u1", "", size=0), sized("u2", "", size=0)], False),
    ],
)
def test_a_job_waits_while_one_of_its_pods_does(members: list[GroupPod], *, waits: bool) -> None:
    """Whichever of them names the size; a job without one has no groups to wait for."""
    pods = GroupPods()
    pods.update({one.uid: one for one in members})

    assert pods.waiting_jobs(NOON) == (["team-a/owner j"] if waits else [])


def test_a_pod_may_change_its_job_and_its_size() -> None:
    """Nothing of what it was is left, and in the end nothing at all."""
    pods = GroupPods()
    pods.update({"u1": sized("u1", ""), "u2": sized("u2", "", size=0)})
    moved = replace(sized("u1", ""), job="team-a/podgroup g")
    pods.update({"u1": moved})
    assert [one.uid for one in pods.job("team-a/owner j")] == ["u2"]
    assert list(pods.job("team-a/podgroup g")) == [moved]
    assert pods.waiting_jobs(NOON) == ["team-a/podgroup g"]

    pods.update({"u1": replace(moved, size=0)})
    assert not pods.has_groups()
    pods.update({"u1": None, "u2": None})
    assert all(not known for known in vars(pods).values())


@pytest.mark.parametrize(
    ("containers", "asks"),
    [
        ([{"name": "main"}], False),
        ([{"name": "main", "resources": {}}], False),
        ([{"name": "main", "resources": {"limits": None}}], False),
        ([{"name": "main"}, {"name": "side", "resources": {"limits": GPUS}}], True),
        ([{"name": "main", "resources": {"limits": {"cpu": "1", **GPUS}}}], True),
    ],
)
@pytest.mark.parametrize("stage", ["containers", "initContainers"])
def test_one_container_that_asks_is_enough(
    stage: str, containers: list[dict[str, Any]], *, asks: bool
) -> None:
    """An init container as well as any other."""
    spec = {"containers": [{"name": "other"}], stage: containers}

    assert (seen(written(spec=spec)) is not None) is asks


@pytest.mark.parametrize(
    "owners",
    [
        "Job",
        7,
        {"uid": "owner-1"},
        ["Job"],
        [None],
        [{"uid": 7, "controller": True}],
        [{"uid": "owner-1", "controller": "yes"}],
        [{"uid": ["owner-1"], "controller": True}],
        [[]],
        True,
    ],
)
def test_malformed_owners_keep_nobody_else_from_being_seen(owners: object) -> None:
    """The pod is of no job; a watch goes on with the next one."""
    assert seen(written(ownerReferences=owners)) is None


@pytest.mark.parametrize(
    "time", ["2026-11-21T12:00:00", "2026-11-21", "", "\u0662026-11-21T12:00:00Z", "9" * 5000]
)
def test_a_time_without_a_zone_is_none(time: str) -> None:
    """It could not be compared with any other."""
    found = seen(written(creationTimestamp=time))

    assert found is not None
    assert found.created is None


def test_the_name_of_a_pod_is_its_own() -> None:
    """Its number in the job is read there."""
    found = seen(written(uid="u1", name="train-worker-3"))

    assert found is not None
    assert (found.uid, found.name) == ("u1", "train-worker-3")


def test_the_watch_of_all_pods_fills_it() -> None:
    """And empties it."""
    pods, watch = GroupPods(), pod_informer()
    pods.follow(watch)
    uid, views = watch.decode(written(uid="u1", annotations={GROUP_SIZE_KEY: "16"}))
    watch.publish({uid: (uid, views)})
    assert pods.has_groups()

    watch.publish({uid: None})
    assert not pods.has_groups()


def test_limits_are_those_of_all_containers() -> None:
    """Of extended resources only, whole numbers with or without quotes."""
    containers = [
        {"resources": {"limits": {"metax-tech.com/gpu": "2", "cpu": "4"}}},
        {"resources": {"limits": {"metax-tech.com/gpu": 1, "example.com/nic": "1"}}},
        {},
    ]
    pod = seen(written(spec={"containers": containers}))
    assert pod is not None
    assert pod.limits == (("metax-tech.com/gpu", 3), ("example.com/nic", 1))


@pytest.mark.parametrize(
    "amount",
    [
        "",
        "-1",
        "1k",
        "8.0",
        "8 ",
        "9" * 4000,
        "\u0664",
        '\\"8',
        None,
        True,
        8.5,
        1e30,
        ["8"],
        {"8": 8},
    ],
)
def test_an_amount_that_is_no_whole_number_is_left_out(amount: object) -> None:
    """Whatever its type; the pod is read all the same."""
    limits = {"metax-tech.com/gpu": amount, "metax-tech.com/sgpu": "1"}
    pod = seen(written(spec={"containers": [{"resources": {"limits": limits}}]}))
    assert pod is not None
    assert pod.limits == (("metax-tech.com/sgpu", 1),)


@pytest.mark.parametrize(("digits", "counted"), [(9, True), (10, False)])
def test_an_amount_has_nine_digits_at_most(digits: int, *, counted: bool) -> None:
    """No node has a thousand million of anything that a group would count."""
    found = seen(written(limits={"metax-tech.com/gpu": "9" * digits}))

    assert found is not None
    assert found.limits == ((("metax-tech.com/gpu", 10**digits - 1),) if counted else ())
