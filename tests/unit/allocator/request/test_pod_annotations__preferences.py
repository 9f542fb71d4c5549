"""Preferences: binpack and spread by the keys that users of each ecosystem know."""

import pytest

from allocator.catalog.keys import GPU_POLICY_KEY, NODE_POLICY_KEY
from allocator.model.decision import Findings
from allocator.model.request import FillPolicies, FillPolicy
from allocator.request.pod_annotations import HAMI_GPU_KEY, HAMI_NODE_KEY, fill_policies

BINPACK, SPREAD = FillPolicy


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, FillPolicies(), id="nothing"),
        pytest.param({NODE_POLICY_KEY: "spread"}, FillPolicies(node=SPREAD), id="node"),
        pytest.param({GPU_POLICY_KEY: "binpack"}, FillPolicies(gpu=BINPACK), id="gpu"),
        pytest.param({HAMI_NODE_KEY: "binpack"}, FillPolicies(node=BINPACK), id="hami-node"),
        pytest.param({HAMI_GPU_KEY: "spread"}, FillPolicies(gpu=SPREAD), id="hami-gpu"),
        pytest.param({HAMI_GPU_KEY: "spread, numa"}, FillPolicies(gpu=SPREAD), id="hami-list"),
        pytest.param({HAMI_GPU_KEY: "binpack,spread"}, FillPolicies(gpu=BINPACK), id="first-word"),
        pytest.param({HAMI_GPU_KEY: "topology-aware"}, FillPolicies(), id="topology-only"),
        pytest.param(
            {HAMI_GPU_KEY: "spread", GPU_POLICY_KEY: "binpack"},
            FillPolicies(gpu=BINPACK),
            id="ours-first",
        ),
    ],
)
def test_annotations_are_read(annotations: dict[str, str], expected: FillPolicies) -> None:
    """Each key says how one level is filled; what is not said stays with the cluster."""
    assert fill_policies(annotations) == expected


@pytest.mark.parametrize(
    ("key", "text", "what"),
    [
        pytest.param(NODE_POLICY_KEY, "", 'node-policy "" is not a policy', id="empty"),
        pytest.param(GPU_POLICY_KEY, "Spread", 'gpu-policy "Spread" is not a policy', id="case"),
        pytest.param(HAMI_NODE_KEY, "spread,numa", "is not a policy", id="no-list-for-nodes"),
        pytest.param(HAMI_GPU_KEY, "spread,best", "is not a policy", id="unknown-word"),
        pytest.param(HAMI_GPU_KEY, "mutex", "GPUs that are not shared", id="mutex"),
    ],
)
def test_what_is_not_understood_is_refused(key: str, text: str, what: str) -> None:
    """A wish that would be ignored in silence is a finding with a remedy."""
    found = fill_policies({key: text})

    assert isinstance(found, Findings)
    (finding,) = found.all
    assert what in finding.what
    assert finding.field == f'metadata.annotations["{key}"]'
    assert key in finding.remedy or "mutex" in finding.remedy


def test_both_levels_are_reported() -> None:
    """A user sees all that is wrong at once."""
    found = fill_policies({NODE_POLICY_KEY: "x", GPU_POLICY_KEY: "y" * 100_000})

    assert isinstance(found, Findings)
    assert len(found.all) == 2
    assert all(len(finding.what) < 200 for finding in found.all)


def test_a_pod_goes_before_the_cluster() -> None:
    """What a pod leaves open is the cluster's."""
    cluster = FillPolicies(node=BINPACK, gpu=BINPACK)

    assert FillPolicies(gpu=SPREAD).with_defaults(cluster) == FillPolicies(node=BINPACK, gpu=SPREAD)
