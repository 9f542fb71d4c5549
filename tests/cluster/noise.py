"""A noisy tenant: a service account that holds every seat of workload-low, with calls that hang."""

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.builders.pods import pod
from tests.cluster.api import Api, ApiError, wait_for
from tests.cluster.installation import PODS, Installation
from tests.cluster.stub_hook import HOOKS, Way, stub_hook

# So few that somebody can take them all; the defaults are 400 and 200.
SEATS = ("--max-requests-inflight=20", "--max-mutating-requests-inflight=10")
TENANT = "system:serviceaccount:{}:noisy"
CALLERS = 40
TURNED_AWAY = (429, 500, 503, 504)  # by whoever has no time


@contextlib.contextmanager
def noise(site: Installation) -> Iterator[None]:
    """Let a tenant's service account hold every seat of workload-low, with calls that hang.

    They hang in somebody's hook that takes its time.
    """
    tenant = site.namespace({})
    name = {"kubernetes.io/metadata.name": tenant}
    _allow(site, tenant)
    user, over = TENANT.format(tenant), False

    def hang(_: int) -> None:
        with site.plane.api() as api:
            while not over:
                _dry_run(api, tenant, user)

    with stub_hook(site.plane.folder, {"slow": Way(response={}, seconds=2)}) as stub:
        hook = stub.entry("slow", "slow.example.com", namespaceSelector={"matchLabels": name})
        site.api.create(HOOKS, {"metadata": {"name": "slow"}, "webhooks": [hook]})
        with ThreadPoolExecutor(CALLERS) as pool:
            hanging = [pool.submit(hang, number) for number in range(CALLERS)]
            try:
                yield
            finally:
                over = True
                site.api.delete(f"{HOOKS}/slow")
    for one in hanging:
        one.result()


def queued(site: Installation) -> int:
    """Return how many calls wait for a seat of workload-low right now."""
    metrics = site.api.get("/metrics")["message"]
    sample = r'^apiserver_flowcontrol_current_inqueue_requests\{.*"workload-low".*\} (\S+)$'
    return sum(int(float(value)) for value in re.findall(sample, metrics, re.MULTILINE))


def _dry_run(api: Api, namespace: str, user: str) -> None:
    """Have a pod reviewed in the name of a service account.

    To be turned away is no failure; to be refused is one, for it holds no seat for long.
    """
    groups = {"Impersonate-Group": "system:serviceaccounts"}
    headers = {"Impersonate-User": user, **groups}
    written = {"metadata": {"name": "noisy"}, "spec": pod()["spec"]}
    try:
        api.request(
            "POST", PODS.format(namespace), written, query={"dryRun": "All"}, headers=headers
        )
    except ApiError as error:
        if error.status not in TURNED_AWAY:
            raise
    except OSError:
        pass


def _allow(site: Installation, tenant: str) -> None:
    """Let the tenant's account create pods; no controller runs that would say what editors may."""
    place = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    site.api.create(f"{place}/roles", {"metadata": {"name": "noisy"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "noisy"}
    subject = {"kind": "ServiceAccount", "name": "noisy", "namespace": tenant}
    body = {"metadata": {"name": "noisy"}, "roleRef": role, "subjects": [subject]}
    site.api.create(f"{place}/rolebindings", body)
    review = {
        "user": TENANT.format(tenant),
        "resourceAttributes": {"namespace": tenant, "verb": "create", "resource": "pods"},
    }
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_for(lambda: site.api.create(reviews, {"spec": review}).body["status"]["allowed"])
