"""Whatever is sent to the hooks, they answer in the protocol's own form."""

import asyncio
import json
from collections.abc import Mapping, MutableMapping
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.config.settings import Settings
from allocator.model.gpu import Snapshot
from tests.builders.pods import MEMORY, MODE, container, pod, received
from tests.harness.records import KeptRecords
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.records.pass_records import PassRecords
from webhook.serve.admission import LARGEST_BODY, AdmissionApp, PodHandler
from webhook.serve.metrics import WebhookMetrics
from webhook.workload.workload_server import WorkloadHandler

Json = dict[str, Any]
PATHS = ("/mutate/pods", "/validate/pods", "/mutate/pods/ephemeralcontainers")
NEW_YEAR = 1_767_225_600 * 10**9  # nanoseconds since 1970
VIEW = AdmissionView(
    context=AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
)


class Notes:
    """Keeps what would have been recorded."""

    def __init__(self) -> None:
        self.kept = KeptRecords()

    def remember(self, record: Mapping[str, Any], /) -> None:
        self.kept.append(record)


def application(
    notes: Notes | None = None, *, most: int = 8, workloads: WorkloadHandler | None = None
) -> AdmissionApp:
    async def rest(_scope: object, _receive: object, _send: object) -> None:
        raise AssertionError("a hot path went elsewhere")

    reviewer = PodHandler(
        view=lambda _: VIEW,
        records=PassRecords(notes or Notes(), now=lambda: NEW_YEAR),
        metrics=WebhookMetrics(version="0"),
    )
    return AdmissionApp(reviewer, rest, workloads=workloads, most=most)


def posted(body: bytes, path: str = PATHS[0], chunk: int = 1 << 20) -> tuple[int, bytes]:
    """Send *body* through the ASGI application and return status and answer."""
    parts = [body[i : i + chunk] for i in range(0, len(body), chunk)] or [b""]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(application()(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def review(found: object, **request: object) -> bytes:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "team-a",
            "object": found,
        }
        | request,
    }
    return json.dumps(body).encode(errors="surrogatepass")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"{", 400, id="cut-off"),
        pytest.param(b"null", 400, id="null"),
        pytest.param(b"[]", 400, id="list"),
        pytest.param(b"\xff\xfe", 400, id="not-text"),
        pytest.param(b'{"kind":"Pod","apiVersion":"v1"}', 400, id="another-kind"),
        pytest.param(b'{"a":' * 200_000, 400, id="depth-bomb"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, 400, id="list-bomb"),
        pytest.param(b" " * (LARGEST_BODY + 1), 413, id="over-7-mib"),
        pytest.param(b" " * LARGEST_BODY, 400, id="7-mib-of-nothing"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_review_is_answered_plainly(path: str, body: bytes, status: int) -> None:
    """There is no uid to answer to, so the status says it."""
    assert posted(body, path)[0] == status


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(None, id="absent"),
        pytest.param([], id="list"),
        pytest.param({"spec": {"containers": {}}}, id="containers-are-a-map"),
        pytest.param({"spec": {"containers": [{}]}}, id="nameless"),
        pytest.param({"spec": {"containers": [{"name": 7}]}}, id="number-for-a-name"),
        pytest.param({"metadata": {"annotations": {"a": 1}}}, id="number-for-a-value"),
        pytest.param({"spec": {"containers": [{"name": "c"}] * 513}}, id="513-containers"),
        pytest.param({"metadata": {"annotations": {MODE: None}}}, id="null-for-a-value"),
    ],
)
def test_an_unreadable_pod_is_refused_by_its_uid(found: object) -> None:
    """The API server gets a proper answer, and the user a sentence."""
    status, answer = posted(review(found))
    response = orjson.loads(answer)["response"]

    assert (status, response["uid"], response["allowed"]) == (200, "u", False)
    assert response["status"]["message"].endswith("[UnreadablePod]")


def test_another_kind_of_object_is_refused_by_its_uid() -> None:
    """A registration that matches too much must not make us guess."""
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    response = orjson.loads(posted(review(pod(), kind=kind))[1])["response"]

    assert not response["allowed"]
    assert "apps/Deployment" in response["status"]["message"]


def test_a_slow_body_arrives_in_pieces() -> None:
    """Size is counted over all pieces."""
    body = review(received(pod()))

    assert orjson.loads(posted(body, chunk=7)[1])["response"]["allowed"]


TEXT = st.text(max_size=40)
KEYS = st.one_of(
    TEXT,
    st.sampled_from(
        [MODE, "vgpu-admission.io/asked", "vgpu-admission.io/mode-source", "cdi.k8s.io/x"]
    ),
)
QUANTITIES = st.one_of(TEXT, st.integers(), st.sampled_from(["3k", "8Gi", "-1", "1e400", "0.5"]))
NAMES = st.sampled_from(
    [MEMORY, "volcano.sh/vgpu-number", "volcano.sh/vgpu-cores", "aliyun.com/gpu-mem", "x"]
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
CONTAINERS = st.fixed_dictionaries(
    {"name": TEXT},
    optional={
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "limits": st.dictionaries(NAMES, QUANTITIES, max_size=3),
                "requests": st.dictionaries(NAMES, QUANTITIES, max_size=3),
            },
        ),
        "env": st.lists(st.fixed_dictionaries({"name": TEXT}, optional={"value": TEXT})),
        "volumeMounts": st.lists(st.fixed_dictionaries({"name": TEXT, "mountPath": TEXT})),
        "unknownToUs": ANYTHING,
    },
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"namespace": TEXT},
            optional={"annotations": st.dictionaries(KEYS, TEXT, max_size=4)},
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, max_size=3)},
            optional={"initContainers": st.lists(CONTAINERS, max_size=2), "nodeName": TEXT},
        ),
    }
)


@given(found=st.one_of(PODS, ANYTHING), path=st.sampled_from(PATHS))
@settings(max_examples=250)
def test_any_object_gets_an_answer_with_its_uid(found: object, path: str) -> None:
    """No crash, no 500, and a refusal always says why."""
    status, answer = posted(review(found), path)
    response = orjson.loads(answer)["response"]

    assert (status, response["uid"]) == (200, "u")
    assert response["allowed"] or response["status"]["message"]


def test_a_dry_run_is_answered_in_full_and_leaves_no_trace() -> None:
    """A free preview."""
    notes = Notes()
    reviewer = application(notes)._reviewer  # noqa: SLF001 -- the seam below HTTP
    written = received(pod(container(limits={MEMORY: 3000})))
    dry = orjson.loads(reviewer.mutate(review(written, dryRun=True)))
    trace = list(notes.kept)
    wet = orjson.loads(reviewer.mutate(review(written, dryRun=False)))

    assert dry == wet
    assert trace == []
    assert len(notes.kept) == 1
