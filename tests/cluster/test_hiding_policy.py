"""GPUs are hidden by the API server itself, whether our hook answers, fails or is not there."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from allocator.catalog.conditions import MOST_LIMITS, MOST_VARIABLES
from allocator.controllers import hiding_policy
from manifests.generator.names import CONTROL_PLANE
from tests.builders.pods import NUMBER, container, pod
from tests.cluster.api import APPLY, STRATEGIC, ApiError, Json, wait_for
from tests.cluster.installation import HOOKS, OPTED_IN, PODS, Installation, installation
from tests.cluster.site import Who
from tests.cluster.stub_hook import HOOKS as MUTATING
from tests.cluster.stub_hook import Way, patch, stub_hook

NAME = "NVIDIA_VISIBLE_DEVICES"
VOID = {"name": NAME, "value": "void"}
ALL = {"name": NAME, "value": "all"}
POLICY = f"{HOOKS}/mutatingadmissionpolicies/{hiding_policy.NAME}"
FIELD = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
A, B = {"name": "A", "value": "1"}, {"name": "A", "value": "2"}
LATE = {"op": "add", "path": "/spec/containers/-", "value": container("late")}


@pytest.fixture(scope="module")
def up(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation whose leader has published the policy."""
    with installation(programs, tmp_path_factory.mktemp("hiding")) as found:
        wait_for(
            lambda: found.api.get(f"{POLICY.replace('policies', 'policybindings')}"), within=60
        )
        yield found


@pytest.fixture(scope="module")
def site(up: Installation) -> Installation:
    """Return it with our hook down. The policy is in force once the API server has read it."""
    up.stop()
    probe = up.namespace()
    wait_for(lambda: environments(up, probe, pod(container()))["main"])
    return up


@pytest.fixture
def team(site: Installation) -> str:
    return site.namespace()


def environments(site: Installation, namespace: str, written: Json) -> dict[str, list[Json]]:
    """Return the variables of each container of a pod as it would be stored."""
    spec = site.create(namespace, written, dryRun="All").body["spec"]
    every = (*spec.get("initContainers", ()), *spec["containers"])
    return {c["name"]: c.get("env", []) for c in every}


def test_both_together_write_it_once(up: Installation) -> None:
    """Our hook takes what the policy wrote for right, and records the pod as rewritten."""
    written = pod(container(env=[A]), init=[container("i")])

    def admitted() -> tuple[Json, Json] | None:
        """Return a pod and its record, once the policy is in force."""
        where = up.namespace()
        found = up.stored(where, written)
        (record,) = wait_for(lambda: [r for r in up.first.records() if r.get("namespace") == where])
        return None if record.get("changes") else (found, record)

    found, record = wait_for(admitted) or ({}, {})
    every = (*found["spec"]["initContainers"], *found["spec"]["containers"])
    assert [c["env"] for c in every] == [[VOID], [A, VOID]]
    assert record["outcome"] == "rewritten"


def test_too_large_a_review_changes_nothing(up: Installation) -> None:
    """The attack that our hook cannot read is refused, or stored without GPUs; not let through."""
    where = up.namespace()
    big = [{"name": "BIG", "value": "<" * 1_250_000}]

    assert "vgpu-admission.io" in up.refusal(where, pod(container(env=[*big, ALL])))
    assert "its review has more than" in up.refusal(where, pod(container(env=big)))


BLIND = {
    "no-list": ([], [VOID]),
    "others": ([A], [A, VOID]),
    "one-twice": ([A, B], [A, B, VOID]),
    "value-from": ([{"name": "A", **FIELD}], None),
    "none": ([{"name": NAME, "value": "none"}], [{"name": NAME, "value": "none"}]),
    "empty": ([{"name": NAME}], [{"name": NAME}]),
    "void": ([VOID], [VOID]),
    "void-twice": ([VOID, VOID], [VOID, VOID]),
}


@pytest.mark.parametrize(("env", "stored"), BLIND.values(), ids=BLIND)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_gpus_are_hidden_without_us(
    site: Installation, team: str, where: str, *, env: list[Json], stored: list[Json] | None
) -> None:
    """In each container that asks for nothing, after all that it has, and never twice."""
    subject = container("subject", env=env or None)
    written = pod(subject) if where == "containers" else pod(container(), init=[subject])

    found = environments(site, team, written)["subject"]

    assert found == stored if stored is not None else (found[0]["name"], found[1:]) == ("A", [VOID])


def test_what_comes_from_elsewhere_is_beaten(site: Installation, team: str) -> None:
    """An explicit variable goes before one of envFrom."""
    written = container(envFrom=[{"configMapRef": {"name": "all"}}], env=None)

    assert environments(site, team, pod(written))["main"] == [VOID]


@pytest.mark.parametrize(
    "env",
    [
        [ALL],
        [ALL, VOID],
        [VOID, ALL],
        [{"name": NAME, **FIELD}],
        [VOID, {"name": NAME, "value": "0"}],
    ],
    ids=["all", "first", "last", "field", "index"],
)
@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": "1"}], ids=["asks-none", "client"])
def test_naming_gpus_is_refused_without_us(
    site: Installation, team: str, *, env: list[Json], limits: dict[str, str]
) -> None:
    """Wherever it stands in the list, and whoever gives the container a GPU."""
    refused = site.refusal(team, pod(container(limits=limits, env=env)))

    assert "asks for no vGPU, so it may not set NVIDIA_VISIBLE_DEVICES" in refused


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "koordinator.sh/gpu-core", "volcano.sh/gpu-memory"]
)
@pytest.mark.parametrize(
    ("amount", "keeps"),
    [("1", True), ("1k", True), ("0", False), ("0k", False), ("0.0", False), (0, False), (1, True)],
)
def test_a_client_of_another_plugin_keeps_its_gpu(
    site: Installation, team: str, name: str, *, amount: str | int, keeps: bool
) -> None:
    """More than nothing of what gives a GPU, however it is written."""
    found = environments(site, team, pod(container(limits={name: amount}), container("b")))

    assert found == {"main": [] if keeps else [VOID], "b": [VOID]}


def test_a_named_node_proves_nothing(site: Installation, team: str) -> None:
    """Kubelet ignores resources that its node does not have."""
    client = container(limits={"nvidia.com/gpu": "1"})

    assert environments(site, team, pod(client, nodeName="gpu-1"))["main"] == [VOID]


def test_who_asks_waits_for_us(site: Installation, team: str) -> None:
    """Such a pod is decided by the hook that must answer."""
    assert "failed calling webhook" in site.refusal(team, pod(container(limits={NUMBER: 1})))


@pytest.mark.parametrize("labels", [{}, {"vgpu-admission.io/inject": "Enabled"}])
def test_other_namespaces_are_left_alone(site: Installation, labels: dict[str, str]) -> None:
    """Nothing is written where nobody opted in."""
    assert environments(site, site.namespace(labels), pod(container()))["main"] == []


def debugged(site: Installation, team: str, *added: Json) -> Json:
    path = f"{PODS.format(team)}/p/ephemeralcontainers"
    body = {"spec": {"ephemeralContainers": list(added)}}
    found = site.api.patch(path, body, kind=STRATEGIC).body["spec"]["ephemeralContainers"]
    return {c["name"]: c.get("env", []) for c in found}


def test_a_debug_container_is_blind_without_us(site: Installation, team: str) -> None:
    """The first and the next, and neither may name GPUs."""
    site.create(team, pod(container()))

    debugged(site, team, container("first", env=[A]))
    found = debugged(site, team, container("second"))

    assert found == {"first": [A, VOID], "second": [VOID]}
    with pytest.raises(ApiError, match="may not set NVIDIA_VISIBLE_DEVICES"):
        debugged(site, team, container("third", env=[ALL]))


def test_a_container_that_an_injector_adds_is_blind(site: Installation, tmp_path: Path) -> None:
    """Policies come before webhooks, and are asked again about what those change."""
    with stub_hook(tmp_path, {"adds": Way(response=patch(LATE))}) as stub:
        where = site.namespace({**OPTED_IN, "followed": "adds"})
        selector = {"matchLabels": {"followed": "adds"}}
        hook = stub.entry("adds", "z.example.com", namespaceSelector=selector)
        site.api.create(MUTATING, {"metadata": {"name": "z"}, "webhooks": [hook]})
        try:
            found = wait_for(lambda: _with_late(site, where))
        finally:
            site.api.delete(f"{MUTATING}/z")

    assert found == {"main": [VOID], "late": [VOID]}


def _with_late(site: Installation, where: str) -> dict[str, list[Json]]:
    found = environments(site, where, pod(container()))
    return found if "late" in found else {}


@pytest.mark.parametrize("count", [0, 1, 1000, 2000])
def test_many_containers_with_many_variables(site: Installation, team: str, count: int) -> None:
    """What the evaluator allows to be spent suffices for each of them."""
    env = [{"name": f"A{number}"} for number in range(count)]
    found = environments(site, team, pod(*(container(f"c{k}", env=env) for k in range(25))))

    assert [env[count:] for env in found.values()] == [[VOID]] * 25


def test_the_longest_list_that_is_searched(site: Installation, team: str) -> None:
    """One of them is ours. One more is refused in words, be the variable among them or not."""
    most = [{"name": f"A{number}"} for number in range(MOST_VARIABLES - 1)]

    assert environments(site, team, pod(container(env=most)))["main"][-1] == VOID
    for more in (A, ALL):
        refused = site.refusal(team, pod(container(env=[*most, A, more])))
        assert f"container main has more than {MOST_VARIABLES} variables" in refused


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda: pod(*(container(f"c{k}") for k in range(20_000))), id="containers"),
        pytest.param(
            lambda: pod(
                container(limits={f"nvidia.com/x{k}": "0" for k in range(MOST_LIMITS + 1)})
            ),
            id="limits",
        ),
        pytest.param(
            lambda: pod(
                *(
                    container(
                        f"c{k}", limits={f"example.com/x{n}": "1" for n in range(MOST_LIMITS)}
                    )
                    for k in range(60)
                )
            ),
            id="limits-of-many",
        ),
        pytest.param(
            lambda: pod(
                *(container(f"c{k}", env=[{"name": "A"}] * (MOST_VARIABLES - 1)) for k in range(18))
            ),
            id="variables-of-many",
        ),
    ],
)
def test_what_is_too_much_to_evaluate_is_not_let_through(
    site: Installation, team: str, written: Callable[[], Json]
) -> None:
    """It is refused, or no container of it is left without the variable."""
    made = written()

    refused = site.refusal(team, made)

    assert refused or all(env[-1:] == [VOID] for env in environments(site, team, made).values())


def test_the_control_plane_may_publish_nothing_else(site: Installation) -> None:
    """Neither under another name nor by deleting."""
    headers = Who(CONTROL_PLANE).headers | {"Impersonate-Group": "system:authenticated"}
    other = POLICY.replace(hiding_policy.NAME, "other.example.com")
    for method, path in (("GET", POLICY), ("DELETE", POLICY), ("PATCH", other)):
        kind = {"Content-Type": APPLY} if method == "PATCH" else {}
        with pytest.raises(ApiError) as refused:
            site.api.request(method, path, {}, query={"fieldManager": "t"}, headers=headers | kind)
        assert refused.value.status == 403
