"""Whose kernels go first: what a namespace allows is what its pods may ask for, and no more."""

import pytest

from tests.builders.pods import MODE, pod, variables
from tests.cluster.api import ApiError, wait_for
from tests.cluster.installation import PODS, Installation

OURS = "vgpu-admission.io/"
HIGH = {f"{OURS}task-priority": "high", MODE: "hami-core"}


def test_a_namespace_lets_its_pods_go_first(gpu_site: Installation) -> None:
    """From when an administrator says so; and no pod changes its mind once it is there."""
    where = gpu_site.namespace()
    refusal = gpu_site.refusal(where, pod(annotations=HIGH))
    assert "PriorityNotAllowed" in refusal
    assert f"{OURS}high-priority=allow" in refusal

    allowed = {"metadata": {"annotations": {f"{OURS}high-priority": "allow"}}}
    gpu_site.api.patch(f"/api/v1/namespaces/{where}", allowed)
    wait_for(lambda: not gpu_site.refusal(where, pod(annotations=HIGH)))
    other = gpu_site.create(where, pod(annotations={MODE: "hami-core"}), dryRun="All").body
    first = gpu_site.stored(where, pod(annotations=HIGH))

    assert variables(first)["CUDA_TASK_PRIORITY"] == "0"
    assert variables(other)["CUDA_TASK_PRIORITY"] == "1"
    path = f"{PODS.format(where)}/{first['metadata']['name']}"
    with pytest.raises(ApiError, match="cannot change"):
        gpu_site.api.patch(path, {"metadata": {"annotations": {f"{OURS}task-priority": "low"}}})
