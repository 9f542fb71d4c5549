"""Finding the person behind a pod."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.record import OwnerPart, RequesterSource
from console.records.requester import (
    UNKNOWN,
    Requester,
    WorkloadVersion,
    requester_of,
    template_author,
    uid_number,
    versions_to_keep,
)

AMY, BO, CONTROLLER = 1, 2, 3
JOB = OwnerPart(kind="Job", name="job", uid="job-uid")


def version(at: int, user: int, *, template: int = 7, owner: str = "") -> WorkloadVersion:
    return WorkloadVersion(at, b"", user, template, uid_number(owner))


def found(*versions: WorkloadVersion, at: int = 100) -> Requester:
    return requester_of(CONTROLLER, JOB, at=at, histories={uid_number(JOB.uid): versions})


def by_workload(user: int) -> Requester:
    return Requester(user=user, source=RequesterSource.WORKLOAD)


def test_a_pod_without_owner_is_its_creators() -> None:
    """Whoever created it asked for it."""
    assert requester_of(AMY, None, at=0, histories={}) == Requester(
        user=AMY, source=RequesterSource.DIRECT
    )


def test_a_controllers_pod_is_that_of_whoever_wrote_the_template() -> None:
    """A controller that changes something else is not its author."""
    assert found(version(1, AMY), version(2, CONTROLLER)) == by_workload(AMY)
    assert found(version(1, AMY), version(2, BO, template=8)) == by_workload(BO)
    back = (version(1, AMY), version(2, BO, template=8), version(3, CONTROLLER))
    assert found(*back) == by_workload(CONTROLLER)


def test_changes_after_the_pod_was_created_do_not_count() -> None:
    """The person is the one of that moment."""
    assert found(version(1, AMY), version(200, BO, template=8)) == by_workload(AMY)
    assert found(version(200, BO)) == UNKNOWN


def test_nobody_is_guessed() -> None:
    """A missing link, another object or templates that are not known end in unknown."""
    assert found() == UNKNOWN
    assert found(version(1, AMY, owner="deployment-uid")) == UNKNOWN
    assert found(version(1, AMY, template=0), version(2, BO, template=0)) == UNKNOWN
    assert found(version(1, AMY, template=0), version(2, AMY, template=0)) == by_workload(AMY)
    nameless = OwnerPart(kind="Job", name="job")
    assert requester_of(CONTROLLER, nameless, at=1, histories={0: [version(0, AMY)]}) == UNKNOWN


def test_owners_are_followed_upwards() -> None:
    """From a ReplicaSet to its Deployment; a circle ends."""
    above = {
        uid_number(JOB.uid): [version(5, CONTROLLER, owner="deployment-uid")],
        uid_number("deployment-uid"): [version(1, AMY)],
    }
    assert requester_of(CONTROLLER, JOB, at=9, histories=above) == by_workload(AMY)
    circle = {uid_number(JOB.uid): [version(5, CONTROLLER, owner=JOB.uid)]}
    assert requester_of(CONTROLLER, JOB, at=9, histories=circle) == UNKNOWN


VERSIONS = st.lists(
    st.builds(version, st.integers(0, 20), st.integers(1, 3), template=st.integers(0, 2)),
    max_size=8,
    unique_by=lambda version: version.at,
)


@given(VERSIONS, st.integers(0, 20), st.integers(0, 25))
def test_what_is_removed_changes_no_author_since(
    made: list[WorkloadVersion], cutoff: int, later: int
) -> None:
    """Pruning keeps the answer for every moment from the cutoff on."""
    versions = sorted(made)
    kept = sorted(versions_to_keep(versions, cutoff))
    at = cutoff + later
    whole = [one for one in versions if one.at <= at]
    rest = [one for one in kept if one.at <= at]
    if not whole:
        assert not rest
    elif all(one.template for one in versions):
        assert template_author(rest) == template_author(whole)
    assert all(a < b for a, b in pairwise(kept))


UNKNOWN_TEMPLATES = st.lists(
    st.builds(version, st.integers(0, 20), st.integers(1, 3), template=st.just(0)),
    min_size=1,
    max_size=8,
    unique_by=lambda version: version.at,
)


@given(UNKNOWN_TEMPLATES, st.integers(0, 25))
def test_where_templates_are_unknown_few_versions_tell_whether_one_user_wrote_all(
    made: list[WorkloadVersion], cutoff: int
) -> None:
    """However many there are: the first of two users, and the last of all."""
    versions = sorted(made)
    kept = sorted(versions_to_keep(versions, cutoff))

    assert template_author(kept) == template_author(versions)
    assert len([one for one in kept if one.at < cutoff]) <= 3
