"""Which pods of a job form a group."""

import dataclasses
from datetime import UTC, datetime

from allocator.groups.members import GroupPod, group_of, job_size


def pod(name: str, *, size: int = 0, second: int = 0) -> GroupPod:
    created = datetime(2026, 11, 25, 3, 0, second, tzinfo=UTC)
    return GroupPod(uid=name, job="team/job", name=name, size=size, created=created)


def numbers(pods: list[GroupPod], *, gpus: int = 8) -> dict[str, int | None]:
    """Return the number of each pod's group."""
    groups = {one.name: group_of(one, pods, gpus=gpus) for one in pods}
    return {name: group.number if group else None for name, group in groups.items()}


def test_one_pod_names_the_size_for_all_of_its_job() -> None:
    """A master and seven workers of 8 GPUs are one group of 64."""
    pods = [pod("demo-master-0", size=64), *(pod(f"demo-worker-{i}") for i in range(7))]
    assert set(numbers(pods).values()) == {0}
    group = group_of(pods[3], pods, gpus=8)
    assert group is not None
    assert [one.name for one in group.members][:2] == ["demo-master-0", "demo-worker-0"]
    assert group.size == 64


def test_a_job_that_names_no_size_has_no_groups() -> None:
    """However many GPUs it has."""
    assert numbers([pod("a-0"), pod("a-1")]) == {"a-0": None, "a-1": None}


def test_where_pods_contradict_each_other_the_larger_size_counts() -> None:
    """It keeps together what either of them names."""
    assert job_size([pod("a-0", size=16), pod("a-1", size=32), pod("a-2")]) == 32


def test_consecutive_pods_form_groups() -> None:
    """The master is the first of the first group, and the last group may be smaller."""
    pods = [pod("j-worker-1"), pod("j-worker-0"), pod("j-master-0", size=16), pod("j-worker-3")]
    assert numbers(pods) == {
        "j-master-0": 0,
        "j-worker-0": 0,
        "j-worker-1": 1,
        "j-worker-3": 2,
    }


def test_numbers_count_as_numbers() -> None:
    """Worker 10 comes after worker 9."""
    pods = [pod(f"w-{number}", size=16) for number in range(12)]
    assert numbers(pods)["w-9"] == 4
    assert numbers(pods)["w-10"] == 5


def test_a_pod_that_is_replaced_stays_in_its_group() -> None:
    """Also while another one is missing, because numbers come from names."""
    pods = [pod(f"w-{number}", size=16) for number in (0, 2, 3)]
    again = dataclasses.replace(pods[1], uid="again")
    group = group_of(again, [pods[0], pods[2]], gpus=8)
    assert group is not None
    assert group.number == 1


def test_an_indexed_job_is_numbered_by_its_index() -> None:
    """Its pods have five more letters behind it."""
    pods = [pod("train-0-x2k4p", size=16), pod("train-1-98765"), pod("train-2-bcdfg")]
    assert numbers(pods) == {"train-0-x2k4p": 0, "train-1-98765": 0, "train-2-bcdfg": 1}


def test_pods_without_numbers_are_numbered_as_they_were_created() -> None:
    """A number that several have, such as that of their Job, numbers none of them."""
    pods = [pod(f"run-7-{end}", size=16, second=at) for at, end in enumerate(("ccccc", "aaaaa"))]
    pods.append(pod("run-7-bbbbb", second=9))
    assert numbers(pods) == {"run-7-ccccc": 0, "run-7-aaaaa": 0, "run-7-bbbbb": 1}


def test_a_pod_that_its_job_does_not_know_yet_counts() -> None:
    """A bind may come before the watch has told of its pod."""
    group = group_of(pod("w-1"), [pod("w-0", size=16)], gpus=8)
    assert group is not None
    assert len(group.members) == 2


def test_a_pod_larger_than_its_group_is_a_group_by_itself() -> None:
    """Nothing divides by zero."""
    assert numbers([pod("w-0", size=4), pod("w-1")]) == {"w-0": 0, "w-1": 1}
