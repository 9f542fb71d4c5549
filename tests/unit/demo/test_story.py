"""The story of the demo's day."""

import msgspec
import pytest

from demo.story import minute_of, occurrences, shipped_story, story_of

SHORT = """
namespaces: {a: {}}
settings: [{at: "00:00", text: ""}]
broken: {node: n, gpu: 0, at: "01:00", reason: r}
workloads:
- {at: "01:30", person: p, team: t, namespace: a, name: w, kind: Job, minutes: 5,
   every: 60, times: 3, limits: {x: 1}}
"""


def test_the_shipped_story_can_be_told() -> None:
    """Every workload is in a namespace that has a policy, and begins within the day."""
    story = shipped_story()

    assert {workload.namespace for workload in story.workloads} <= story.namespaces.keys()
    assert story.settings[0].at == "00:00"
    for workload in story.workloads:
        assert all(0 <= minute < 24 * 60 for minute, _ in occurrences(workload))


def test_what_is_repeated_has_a_number_in_its_name() -> None:
    """Two objects of one name could not exist at the same time."""
    (workload,) = story_of(SHORT).workloads

    found = [(minute, one.name) for minute, one in occurrences(workload)]

    assert found == [(90, "w-01"), (150, "w-02"), (210, "w-03")]
    assert minute_of("09:05") == 545


@pytest.mark.parametrize(("wrong", "why"), [("24:00", "matching regex"), ("1:30", "matching")])
def test_a_time_that_is_none_is_refused(wrong: str, why: str) -> None:
    """The error names the field."""
    with pytest.raises(msgspec.ValidationError, match=why) as raised:
        story_of(SHORT.replace("01:30", wrong))

    assert "$.workloads[0].at" in str(raised.value)
