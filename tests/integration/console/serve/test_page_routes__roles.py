"""Nobody learns what they may not see: every route, for every role."""

import json
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from console.access.viewer import Viewer
from console.records.query import EVERYTHING, NOTHING, Scope
from console.serve.page_routes import page_routes
from tests.harness.asgi import get, post
from tests.harness.console_site import CSRF, console_app, services
from tests.harness.page_checks import problems_of
from tests.integration.console.serve.test_page_routes import PATHS

TEAM_A = Scope(namespaces=frozenset({"team-a"}), cluster=False, people=True)
TEAM_B = Scope(namespaces=frozenset({"team-b"}), cluster=False, people=True)
OPERATOR = Scope(namespaces=frozenset({"team-b"}), cluster=True, people=True)
NO_PEOPLE = Scope(namespaces=None, cluster=True, people=False)
FORMATS = ("", "csv", "json")
MANIFEST = "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: []}\n"


def addresses() -> list[str]:
    return sorted(PATHS.values())


OURS = ("vgpu-admission", "vgpu-agent", "<bdi>amy@example.org</bdi> <a")


def content(app: Starlette, address: str) -> str:
    """Return what a page tells, without our own names and that of the viewer."""
    text = get(app, address).text
    for known in OURS:
        text = text.replace(known, "")
    return text


def in_format(address: str, form: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}format={form}" if form else address


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("address", addresses())
def test_a_viewer_of_one_namespace_learns_nothing_of_another(address: str, form: str) -> None:
    """Neither names of its pods, people and nodes, nor what happened there."""
    text = content(console_app(scope=TEAM_B), in_format(address, form))

    for secret in ("team-a/", "train-0", "tune-0", "amy@", "big-", "gpu-a", "XID", "sha256:5e77"):
        assert secret not in text, secret


def test_a_viewer_of_one_namespace_is_told_no_counts_of_another() -> None:
    """Facets, totals and figures count what the viewer may see: one decision of five."""
    app = console_app(scope=TEAM_B)
    decisions = json.loads(get(app, "/decisions?format=json").text)["items"]
    usage = json.loads(get(app, "/namespaces?format=json").text)["items"]
    facets = re.findall(r"</bdi></a> ([0-9,]+)", get(app, "/decisions").text)
    figures = re.findall(r"<dd><a[^>]*><bdi>([0-9,]+)</bdi>", get(app, "/").text)

    assert [one["pod"] for one in decisions] == ["team-b/eval-3"]
    assert [one["namespace"] for one in usage] == ["team-b"]
    assert set(facets) == {"1"}
    assert sorted(figures) == ["0", "0", "0", "1"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("address", addresses())
def test_nobody_without_rights_learns_anything(address: str, form: str) -> None:
    """Whoever is known but may read nothing sees empty lists."""
    text = content(console_app(scope=NOTHING), in_format(address, form))

    for secret in ("team-a/", "team-b", "train-0", "eval-3", "bob@", "gpu-a", "gpu-b"):
        assert secret not in text, secret


@pytest.mark.parametrize("address", ["/nodes/gpu-a", "/nodes/gpu-b"])
def test_an_operator_sees_that_others_are_on_a_node(address: str) -> None:
    """Who may read GPUNodes but not the pods of a namespace does not get their names."""
    page = get(console_app(scope=OPERATOR), address)
    table = get(console_app(scope=OPERATOR), f"{address}?format=json&table=gpu0")

    for text in (page.text, table.text):
        assert "another namespace" in text
        assert "team-a" not in text
        assert "train-0" not in text
        assert "eval-3" not in text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("address", addresses())
def test_names_of_people_are_a_right_of_their_own(address: str, form: str) -> None:
    """Without it no page, table or document names a person, nor who sent a record."""
    text = content(console_app(scope=NO_PEOPLE), in_format(address, form))

    for secret in ("amy@example.org", "bob@example.org", "kubectl-edit", "replicaset-controller"):
        assert secret not in text, secret


@pytest.mark.parametrize("scope", [EVERYTHING, TEAM_A, NOTHING], ids=["all", "team-a", "none"])
@pytest.mark.parametrize("address", addresses())
def test_every_page_is_whole_for_every_role(address: str, scope: Scope) -> None:
    """What is left out leaves no hole."""
    assert problems_of(get(console_app(scope=scope), address).text) == []


@pytest.mark.parametrize("address", [*addresses(), "/decisions?format=json", "/nodes?format=csv"])
def test_nobody_unknown_sees_a_page(address: str) -> None:
    """Without a viewer each route answers 401, and nothing else."""

    async def nobody(_request: Request) -> Viewer | None:
        return None

    app = Starlette(routes=page_routes(replace(services(), viewer=nobody)))
    answer = get(app, address)

    assert answer.status == 401
    for secret in ("team-a", "gpu-a", "GpuMemoryShort"):
        assert secret not in answer.text


def test_a_team_is_told_whether_its_pod_fits_without_nodes() -> None:
    """The verdict and a smaller request, as the Event of a waiting pod has them."""
    app = console_app(scope=TEAM_A)

    fits = get(app, "/fit?memory=15000").text
    never = get(app, "/fit?memory=90000").text

    assert "FITS NOW" in fits
    assert "ask for at most 40192" in never
    for text in (fits, never):
        assert "gpu-a" not in text
        assert "tried" not in text


def form(**values: str) -> bytes:
    return urlencode(values).encode()


def test_a_form_without_the_token_of_its_viewer_is_refused() -> None:
    """Another site can make a browser post, but does not know the token."""
    app = console_app()

    assert post(app, "/fit", form(manifest=MANIFEST, csrf=CSRF)).status == 200
    assert post(app, "/fit", form(manifest=MANIFEST, csrf="x")).status == 403
    assert post(app, "/fit", form(manifest=MANIFEST)).status == 403
    assert post(app, "/fit", b"{}", media_type="application/json").status == 415


def test_a_form_is_bounded() -> None:
    """Neither a large body nor many fields are read."""
    app = console_app()

    assert post(app, "/fit", form(csrf=CSRF, manifest="x" * 600_000)).status == 413
    assert post(app, "/fit", b"&".join(b"a=%d" % n for n in range(40))).status == 400
    assert post(app, "/fit", b"csrf=\xff\xfe").status == 400


@pytest.mark.parametrize(
    "address",
    [
        "/decisions?after=x",
        "/records?after=%00",
        "/decisions?format=xml",
        "/nodes?since=1&format=q",
    ],
)
def test_a_bad_address_is_told(address: str) -> None:
    """What no page made is answered with 400 and a sentence."""
    answer = get(console_app(), address)

    assert answer.status == 400
    assert problems_of(answer.text) == []


@pytest.mark.parametrize("address", ["/decisions/none", "/nodes/none", "/nodes?format=csv&table=x"])
def test_what_is_not_there_is_told(address: str) -> None:
    assert get(console_app(), address).status == 404


def test_every_answer_carries_the_policy() -> None:
    """Pages, tables, errors and files all forbid what they do not need."""
    app = console_app()
    style = get(app, "/").text.split('rel="stylesheet" href="')[1].split('"')[0]
    for address in ("/", "/decisions?format=csv", "/decisions?format=json", "/nodes/none", style):
        headers = get(app, address).headers

        assert headers["content-security-policy"].startswith("default-src 'none';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert get(app, style).headers["cache-control"].endswith("immutable")
    assert get(app, "/").headers["cache-control"] == "no-store"


def test_a_decision_as_json_has_its_records() -> None:
    """An auditor gets all that is stored of a pod."""
    found = json.loads(get(console_app(), "/decisions/k7q2m4x7tb?format=json").text)

    kinds = [one["record"]["kind"] for one in found["records"]]
    assert kinds[0] == "admission"
    assert {"bind", "allocated", "started", "violation"} <= set(kinds)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("address", ["/nodes", "/nodes/gpu-a", "/settings", "/health"])
def test_what_is_not_theirs_is_told_with_the_right_that_lacks(address: str, form: str) -> None:
    """In any format: 403, and the command that asks for the right."""
    answer = get(console_app(scope=TEAM_A), in_format(address, form))

    assert answer.status == 403
    assert "kubectl auth can-i list gpunodes.vgpu-admission.io" in answer.text
