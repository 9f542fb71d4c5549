"""Our own account on a real API server: of a Node it writes a few annotations and nothing else."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.controllers.requeue import FREED_KEY
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from manifests.generator.names import CONTROL_PLANE
from tests.cluster.api import Json, wait_for
from tests.cluster.site import Site, Who, installed, refusal

NODE = "/api/v1/nodes/gpu-1"
OURS = Who(CONTROL_PLANE)


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(programs, tmp_path_factory.mktemp("control-plane")) as site:
        labels = {"team": "theirs"}
        site.api.create("/api/v1/nodes", {"metadata": {"name": "gpu-1", "labels": labels}})
        probe = metadata(labels={"x": "y"})
        wait_for(lambda: refusal(lambda: site.patch(OURS, NODE, probe)))
        yield site


def metadata(**parts: object) -> Json:
    return {"metadata": parts}


@pytest.mark.parametrize("value", ["1", "2", None], ids=["new", "another", "gone"])
@pytest.mark.parametrize("key", [FREED_KEY, REGISTER_ANNOTATION, HANDSHAKE_ANNOTATION])
def test_it_does_its_work(site: Site, key: str, value: str | None) -> None:
    """Waking schedulers and registering with Volcano's pass."""
    change = metadata(annotations={key: value})

    assert refusal(lambda: site.patch(OURS, NODE, change)) == ""


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(metadata(annotations={"team": "x"}), id="note"),
        pytest.param(metadata(labels={"team": "mine"}), id="label"),
        pytest.param(metadata(labels={"team": None}), id="no-label"),
        pytest.param(metadata(finalizers=["example.com/x"]), id="finalizer"),
        pytest.param({"spec": {"unschedulable": True}}, id="cordon"),
        pytest.param({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, id="taint"),
    ],
)
def test_it_writes_nothing_else(site: Site, change: Json) -> None:
    """Who has its token can move no pod by changing Nodes."""
    words = refusal(lambda: site.patch(OURS, NODE, change))

    assert "may change only a few annotations of a Node" in words
