"""Other people's mutating hooks after ours: what they add is covered, what they spoil is caught."""

from collections.abc import Callable, Iterator

import pytest

from tests.builders.pods import MODE, NUMBER, container, pod, variables
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import OPTED_IN, Installation
from tests.cluster.stub_hook import HOOKS, Stub, Way, patch, stub_hook

LATE = container("late", {NUMBER: 1})
FIRST = "/spec/containers/0"
WAYS = {
    "appends": Way(response=patch({"op": "add", "path": "/spec/containers/-", "value": LATE})),
    "prepends": Way(response=patch({"op": "add", "path": FIRST, "value": LATE})),
    "bystander": Way(
        response=patch({"op": "add", "path": FIRST, "value": container("late")}),
    ),
    "strips": Way(
        response=patch(
            {"op": "remove", "path": f"{FIRST}/env"},
            {"op": "add", "path": "/metadata/labels", "value": {"stripped": "yes"}},
        )
    ),
    "overrules": Way(
        response=patch(
            {
                "op": "add",
                "path": f"{FIRST}/env/-",
                "value": {"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "0"},
            }
        )
    ),
}
SOFT = pod(container(limits={NUMBER: 1}), annotations={MODE: "hami-core"})
KEY = "metadata.annotations['vgpu-admission.io/{}.visible']"


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    with stub_hook(tmp_path_factory.mktemp("injector"), WAYS) as found:
        yield found


@pytest.fixture
def followed(gpu_site: Installation, stub: Stub) -> Iterator[Callable[..., str]]:
    """Yield a function that returns a namespace in which our hook is followed by another."""

    def make(way: str, **more: object) -> str:
        where = gpu_site.namespace({**OPTED_IN, "followed": way})
        selector = {"matchLabels": {"followed": way}}
        hook = stub.entry(way, "z.example.com", namespaceSelector=selector, **more)
        gpu_site.api.create(HOOKS, {"metadata": {"name": "z"}, "webhooks": [hook]})
        return where

    yield make
    gpu_site.api.delete(f"{HOOKS}/z")


def admitted(site: Installation, where: str, touched: Callable[[Json], bool]) -> Json:
    """Return a pod as it is admitted once the other hook is called, too."""

    def created() -> list[Json]:
        body: Json = site.create(where, SOFT, dryRun="All").body
        return [body] if touched(body) else []

    (found,) = wait_for(created)
    return found


def has_two(found: Json) -> bool:
    return len(found["spec"]["containers"]) == 2


@pytest.mark.parametrize("way", ["appends", "prepends"])
def test_a_container_that_comes_later_is_covered(
    gpu_site: Installation, followed: Callable[..., str], way: str
) -> None:
    """Wherever it is put, it reads annotations of its own, and the first keeps what it had."""
    found = admitted(gpu_site, followed(way), has_two)

    read = [variables(found, name)["NVIDIA_VISIBLE_DEVICES"] for name in ("main", "late")]
    assert read == [KEY.format(key) for key in ("c0", "c1")]
    late = next(c for c in found["spec"]["containers"] if c["name"] == "late")
    assert late["resources"]["requests"] == late["resources"]["limits"] == {NUMBER: "1"}


def test_a_bystander_that_comes_later_is_blind(
    gpu_site: Installation, followed: Callable[..., str]
) -> None:
    """A sidecar that somebody injects sees none of the pod's GPUs."""
    found = admitted(gpu_site, followed("bystander"), has_two)

    assert variables(found, "late") == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_what_is_removed_is_put_back(gpu_site: Installation, followed: Callable[..., str]) -> None:
    """A hook that strips variables is called before we are asked again."""
    found = admitted(
        gpu_site, followed("strips"), lambda body: "stripped" in body["metadata"].get("labels", {})
    )

    assert variables(found)["NVIDIA_VISIBLE_DEVICES"] == KEY.format("c0")


@pytest.mark.parametrize(
    ("way", "words"),
    [
        pytest.param("strips", "the vGPU injection is incomplete at /spec/", id="removed"),
        pytest.param("overrules", "CUDA_DEVICE_MEMORY_LIMIT_0 is reserved", id="added"),
    ],
)
def test_who_insists_on_lifting_a_limit_is_refused(
    gpu_site: Installation, followed: Callable[..., str], *, way: str, words: str
) -> None:
    """A hook that has the last word among those that change does not have it after all."""
    where = followed(way, reinvocationPolicy="IfNeeded")

    refusal = wait_for(lambda: gpu_site.refusal(where, SOFT))

    assert words in refusal
