"""What the benchmark of groups counts: whole groups, split ones, and what could be placed."""

from benchmarks.groups_truth import GroupsTruth, groups_truth, most_groups

BOXES = {"sb1": {"df1": ["a", "b"], "df2": ["c", "d"]}, "sb2": {"df3": ["e", "f"]}}


def pod(group: str, node: str) -> dict[str, object]:
    return {"metadata": {"labels": {"group": group}}, "spec": {"nodeName": node}}


def test_a_group_in_two_switchboxes_is_split() -> None:
    """One that is not whole is not placed; two dragonflies of one switchbox are one domain."""
    pods = [pod("x", "a"), pod("x", "d"), pod("y", "b"), pod("y", "e"), pod("z", "f"), pod("w", "")]
    assert groups_truth(pods, BOXES, 2) == GroupsTruth(placed=2, split=1, bound=5)


def test_no_placement_reaches_more_than_each_switchbox_holds() -> None:
    """Nodes that are out of service in part hold no pod."""
    assert most_groups(BOXES, [], 2) == 3
    assert most_groups(BOXES, ["a", "e"], 2) == 1
