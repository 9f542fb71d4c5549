"""Who asks for what only our agents offer is refused where admission does not see him."""

from typing import Any

import pytest

from allocator.catalog.keys import OPT_IN_LABEL, OPT_IN_VALUE, SOLE_KEY
from manifests.generator.capacity import MOST_LIMITS, sole_capacity
from manifests.generator.names import REGISTRATION, Json
from tests.authorization.policies import Policies, Review

POLICY, BINDING = sole_capacity()
OURS = {"metadata": {"annotations": {SOLE_KEY: "aliyun.com/gpu-mem,example.com/mem"}}}
LABEL = {OPT_IN_LABEL: OPT_IN_VALUE}
GIB = {"aliyun.com/gpu-mem": "1"}
MIRROR = {"kubernetes.io/config.mirror": "x"}


def pod(*limits: dict[str, str], init: tuple[dict[str, str], ...] = (), **metadata: object) -> Json:
    """Return a pod with a container for each of *limits*."""

    def made(kind: str, asked: dict[str, str], number: int) -> Json:
        return {"name": f"{kind}{number}", "resources": {"limits": asked}}

    spec: Json = {"containers": [made("c", one, n) for n, one in enumerate(limits)]}
    if init:
        spec["initContainers"] = [made("i", one, n) for n, one in enumerate(init)]
    return {"metadata": {"name": "p", **metadata}, "spec": spec}


def refusals(
    made: Json,
    labels: dict[str, str] | None = None,
    *,
    namespace: str = "plain",
    params: Json | None = OURS,
    groups: tuple[str, ...] = ("system:authenticated",),
) -> list[str]:
    """Return what the policy says of a new pod; the parameter may be missing."""
    request: dict[str, Any] = {
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "userInfo": {"username": "tenant", "groups": list(groups)},
    }
    review = Review(
        request=request,
        object=made,
        old=None,
        namespace=labels or {},
        params={} if params is None else {REGISTRATION: params},
    )
    return [finding.words for finding in Policies(sole_capacity()).findings(review)]


def test_seed_004_is_refused_with_a_remedy() -> None:
    """By container and resource, and where it may go."""
    (words,) = refusals(pod(GIB))

    assert words.startswith("container c0 asks for aliyun.com/gpu-mem, which only nodes of")
    assert words.endswith("use one with the label vgpu-admission.io/inject=enabled")
    assert BINDING["spec"]["validationActions"] == ["Deny"]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod({}, GIB), id="second-container"),
        pytest.param(pod({}, init=({}, GIB)), id="init-container"),
        pytest.param(pod({"example.com/mem": "5"}), id="renamed"),
        pytest.param(pod({"cpu": "1"} | GIB | {"volcano.sh/vgpu-number": "1"}), id="among-others"),
        pytest.param(pod({"aliyun.com/gpu-mem": "9223372036854775807"}), id="largest"),
        pytest.param(pod(GIB, annotations=MIRROR), id="mirror-by-a-tenant"),
        pytest.param(pod(GIB, labels=LABEL), id="label-on-the-pod"),
        pytest.param(
            pod({f"example.com/r{n}": "0" for n in range(MOST_LIMITS + 1)}), id="too-many-names"
        ),
        pytest.param(pod(*[{}] * 500, GIB), id="after-many-containers"),
    ],
)
def test_wherever_and_however_it_asks(made: Json) -> None:
    """In every namespace without the label."""
    assert len(refusals(made)) == 1
    assert refusals(made, LABEL) == []


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod({}), id="nothing"),
        pytest.param({"metadata": {}, "spec": {"containers": [{"name": "c"}]}}, id="no-resources"),
        pytest.param(pod({"aliyun.com/gpu-mem": "0"}), id="zero"),
        pytest.param(pod({"aliyun.com/gpu-count": "1"}), id="what-others-offer-too"),
        pytest.param(pod({"volcano.sh/vgpu-number": "1"}), id="another-vocabulary"),
        pytest.param(pod({"aliyun.com/gpu-me": "1"}), id="the-start-of-a-name"),
        pytest.param(pod({"gpu-mem": "1"}), id="the-end-of-a-name"),
        pytest.param(pod({"nvidia.com/gpu": "1"}), id="another-plugins"),
    ],
)
def test_what_may_be_meant_for_other_nodes_passes(made: Json) -> None:
    """The policy unlabelled warns of some of these."""
    assert refusals(made) == []


@pytest.mark.parametrize("namespace", ["kube-system", "vgpu-admission-system"])
def test_the_label_has_no_effect_where_the_hooks_are_not_called(namespace: str) -> None:
    """Nothing would review the pod there."""
    assert len(refusals(pod(GIB), LABEL, namespace=namespace)) == 1
    assert refusals(pod({}), LABEL, namespace=namespace) == []


@pytest.mark.parametrize("value", ["", "disabled", "Enabled"])
def test_only_the_very_label_lets_it_pass(value: str) -> None:
    """As the selectors of the hooks have it."""
    assert len(refusals(pod(GIB), {OPT_IN_LABEL: value})) == 1


def test_a_mirror_that_kubelet_makes_passes() -> None:
    """Its static pod runs all the same, and nobody would see it."""
    nodes = ("system:nodes", "system:authenticated")

    assert refusals(pod(GIB, annotations=MIRROR), groups=nodes) == []
    assert len(refusals(pod(GIB), groups=nodes)) == 1


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(None, id="uninstalled"),
        pytest.param({"metadata": {}}, id="not-noted-yet"),
        pytest.param({"metadata": {"annotations": {"team": "x"}}}, id="without-the-note"),
        pytest.param({"metadata": {"annotations": {SOLE_KEY: ""}}}, id="an-empty-note"),
    ],
)
def test_without_a_note_nothing_is_refused(params: Json | None) -> None:
    """A cluster in which nobody knows can create pods, at first and at last."""
    assert refusals(pod(GIB, {f"a/{n}": "1" for n in range(2000)}), params=params) == []


def test_the_parameter_is_one_that_every_api_server_follows_already() -> None:
    """It is ours, the control plane may write it, and it goes when we are uninstalled."""
    assert POLICY["spec"]["paramKind"]["kind"] == "ValidatingWebhookConfiguration"
    assert BINDING["spec"]["paramRef"] == {
        "name": REGISTRATION,
        "parameterNotFoundAction": "Allow",
    }
