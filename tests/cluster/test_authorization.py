"""Who may do what on a real API server: the same table that is judged without one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from manifests.generator.names import CONTROL_PLANE
from tests.authorization.answers import MORE
from tests.authorization.rbac import groups_of
from tests.authorization.requests import Target, attributes
from tests.authorization.rows import RBAC, Row, Rule, Subject
from tests.authorization.table import TABLE
from tests.authorization.world import DELETED, NAMESPACES, OBJECTS, SITE
from tests.cluster.api import MERGE, ApiError, Json, Reply, wait_for
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.site import MANIFESTS, Site, Who

METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Make the world without controllers, which would write on Nodes meanwhile."""
    plane = ControlPlane(tmp_path_factory.mktemp("table"), programs, Settings())
    with plane, plane.api() as api:
        command = (str(programs["kubectl"]), f"--kubeconfig={plane.kubeconfig}")
        site = Site(api=api, command=command)
        site.kubectl("apply", "-k", str(MANIFESTS / "base"))
        site.kubectl("wait", "--for=condition=Established", "crd/gpunodes.vgpu-admission.io")
        _populate(site)
        wait_for(lambda: all(_is_refused(site, row) for row in _one_of_each_policy()))
        yield site


@pytest.fixture(scope="module")
def installed(site: Site, request: pytest.FixtureRequest) -> Iterator[None]:
    """Add the roles that a site installs beyond the base, for as long as rows are about them."""
    files = [f"--filename={MANIFESTS / name}" for name in MORE[request.param]]
    granted = [
        row for row in TABLE if row.installed == request.param != "base" and RBAC not in row.by
    ]
    if files:
        site.kubectl("apply", *files)
        wait_for(lambda: all(_is_allowed(site, row) for row in granted))
    yield
    if files:
        site.kubectl("delete", *files)
        wait_for(lambda: not any(_is_allowed(site, row) for row in granted))


def _populate(site: Site) -> None:
    """Create all objects; a namespace opts in last, because our webhook does not run."""
    for name in NAMESPACES:
        site.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    site.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(SITE))
    ours = Who(CONTROL_PLANE).headers  # only that account writes ledgers
    for key, made in OBJECTS.items():
        target = Target.of(key)
        whole = {**made, "metadata": {**made["metadata"], "deletionTimestamp": None}}
        path = f"{_collection(target)}/{target.name}"
        site.api.request("POST", _collection(target), whole, headers=ours)
        if target.resource == "nodes":  # admission adds a taint, and drops the status
            site.api.patch(path, {"spec": made["spec"]})
            site.api.patch(f"{path}/status", {"status": made["status"]})
    gone = Target.of(f"gpunodes {DELETED}")
    site.api.request("DELETE", f"{_collection(gone)}/{gone.name}", headers=ours)
    for name, labels in NAMESPACES.items():
        site.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}})


def _collection(target: Target) -> str:
    prefix = f"/apis/{target.group}" if target.group else "/api"
    namespace = f"namespaces/{target.namespace}/" if target.namespace else ""
    return f"{prefix}/{target.version}/{namespace}{target.resource}"


def _headers(who: Subject) -> dict[str, str]:
    """Impersonate, with the groups that the API server gives to such a user by itself."""
    extra = {f"Impersonate-Extra-{quote(key, safe='')}": value for key, value in who.extra.items()}
    return {"Impersonate-User": who.user, **extra}


def _send(site: Site, row: Row) -> Reply:
    """Try the request of a row; nothing is stored, so that rows do not meet."""
    target = Target.of(row.what)
    path = _collection(target)
    if row.verb != "create":
        path += f"/{target.name}" + (f"/{target.subresource}" if target.subresource else "")
    kind = {"Content-Type": MERGE} if row.verb == "patch" else {}
    body = None if row.verb == "delete" else row.change
    headers = {**_headers(row.who), **kind}
    return site.api.request(METHODS[row.verb], path, body, query={"dryRun": "All"}, headers=headers)


def _is_allowed(site: Site, row: Row) -> bool:
    """Ask the authorizer."""
    asked, target = attributes(row), Target.of(row.what)
    resource = {
        "verb": asked.verb,
        "group": asked.group,
        "version": target.version,
        "resource": target.resource,
        "subresource": target.subresource,
        "namespace": asked.namespace,
        "name": asked.name,
    }
    spec = {
        "user": asked.user,
        "groups": list(groups_of(asked.user)),
        "resourceAttributes": resource,
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    allowed: bool = site.api.create(path, {"spec": spec}).body["status"]["allowed"]
    return allowed


def _one_of_each_policy() -> list[Row]:
    """Return a row that each policy refuses, by which it is seen that all are in force."""
    rows = [row for row in TABLE if row.installed == "base" and RBAC not in row.by]
    return list({rule.policy: row for row in rows for rule in row.by}.values())


def _is_refused(site: Site, row: Row) -> bool:
    try:
        _send(site, row)
    except ApiError as error:
        return "ValidatingAdmissionPolicy" in error.message
    return False


def is_said(rule: Rule, text: str) -> bool:
    return f"'{rule.policy}.vgpu-admission.io'" in text and rule.words in text


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("installed", "row"),
    [pytest.param(row.installed, row, id=row.id) for row in TABLE],
    indirect=["installed"],
    scope="module",  # or each row installs anew
)
def test_the_table(site: Site, row: Row) -> None:
    """The authorizer allows what roles should, and policies refuse what the row says.

    Of several refusals the API server tells one; it tells every warning.
    """
    assert _is_allowed(site, row) is (RBAC not in row.by)
    if row.change is None or RBAC in row.by:
        return
    refused = ""
    warnings: tuple[str, ...] = ()
    try:
        warnings = _send(site, row).warnings
    except ApiError as error:
        refused = error.message
    told = any(is_said(rule, refused) for rule in row.by)
    assert told or (refused, row.by) == ("", ())
    unsaid = [rule for rule in row.warned if not any(is_said(rule, text) for text in warnings)]
    assert (len(warnings), unsaid) == (len(row.warned), [])


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
def test_subresources_without_policy_change_no_annotation(site: Site, subresource: str) -> None:
    """The API server takes over nothing but what each is for."""
    key = f"pods/{subresource} team/waiting"
    row = next(row for row in TABLE if row.what == key and row.change is not None)

    body: Json = _send(site, row).body

    annotations = OBJECTS["pods team/waiting"]["metadata"]["annotations"]
    assert body["metadata"]["annotations"] == annotations
