"""Our webhook or the API server away, however long: the node goes on with what it knows.

An hour differs from a moment in what has run out by then: watches, the versions they resume at,
and the agent's token. Here they run out at once.
"""

import base64
import http.client
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from manifests.generator.names import AGENT
from tests.cluster.api import wait_for
from tests.cluster.control_plane import API_SERVER
from tests.cluster.installation import SETTINGS
from tests.cluster.node_agent import GpuNode, log_lines
from tests.cluster.node_pods import (
    RUN_WITHIN,
    delete,
    device_of,
    hard,
    lives,
    pod_of,
    process_of,
    running,
    soft,
    undisturbed,
)

pytestmark = pytest.mark.node

LIMIT, OLD_LIMIT = "vgpu_container_memory_limit_bytes", "vGPU_device_memory_limit_in_bytes"


@contextmanager
def bereft(found: GpuNode) -> Iterator[None]:
    """Let there be no replica of our webhook meanwhile."""
    found.site.stop()
    try:
        yield
    finally:
        for replica in found.site.replicas:
            replica.start()


def again(found: GpuNode, team: str, name: str) -> Callable[[], bool]:
    """Return what says whether a pod runs in its second life."""

    def lives_again() -> bool:
        (status,) = pod_of(found.site, team, name)["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    return lives_again


def end(found: GpuNode, pid: int) -> None:
    """End a container's process as a crash does."""
    found.node.host.run("kill", "-9", str(pid))


def test_agent_and_kubelet_start_without_our_webhook(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """Nothing new is bound, and nothing that runs is disturbed."""
    with bereft(gpu_node):
        gpu_node.agent.stop()
        gpu_node.start()
        gpu_node.node.kubelet.stop()
        gpu_node.node.start()
        gpu_node.wait_until_serving()
        undisturbed(gpu_node, team, tenants)

    gpu_node.site.create(team, soft(name="after"))
    running(gpu_node.site, team, "after")


def test_containers_crash_and_start_without_our_webhook(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """With the same devices; what a pod that ended was promised is taken back afterwards."""
    with bereft(gpu_node):
        for name, device in tenants.items():
            end(gpu_node, process_of(gpu_node, pod_of(gpu_node.site, team, name)))
            wait_for(again(gpu_node, team, name), within=RUN_WITHIN)
            assert device_of(gpu_node, pod_of(gpu_node.site, team, name)) == device
            assert gpu_node.scrape().of(LIMIT, namespace=team, pod=name)
        ended = pod_of(gpu_node.site, team, "soft")["metadata"]["uid"]
        delete(gpu_node.site, team, "soft", grace=1)
        wait_for(lambda: ended not in gpu_node.ledger().held, within=RUN_WITHIN)
        assert ended in gpu_node.promised()

    wait_for(lambda: ended not in gpu_node.promised(), within=RUN_WITHIN)


@contextmanager
def speechless(found: GpuNode) -> Iterator[None]:
    """Let there be no API server meanwhile."""
    found.site.plane.stop(API_SERVER)
    try:
        yield
    finally:
        found.site.plane.start(API_SERVER)


def crash_and_start(found: GpuNode, uids: Collection[str]) -> None:
    """End a process of each pod and return when each has a new one."""
    before = lives(found)
    for uid in uids:
        end(found, before[uid])

    def anew() -> bool:
        now = lives(found)
        return all(now.get(uid, before[uid]) != before[uid] for uid in uids)

    wait_for(anew, within=RUN_WITHIN)


def version_passes(found: GpuNode) -> None:
    """Let something be stored past the API server, whose history begins later than that.

    It answers 410 to who asks for what came before.
    """
    address = urlsplit(found.site.plane.etcd_url).netloc
    with closing(http.client.HTTPConnection(address, timeout=10)) as connection:
        what = {"key": base64.b64encode(b"/elsewhere").decode(), "value": ""}
        connection.request("POST", "/v3/kv/put", json.dumps(what))
        assert connection.getresponse().status == 200


def token_gone(found: GpuNode) -> None:
    """Let the agent's token be worth nothing, as one that has expired: its account is another."""
    *_, team, account = AGENT.split(":")
    accounts = f"/api/v1/namespaces/{team}/serviceaccounts"
    standing = found.site.api.get(f"{accounts}/{account}")["metadata"]
    found.site.api.delete(f"{accounts}/{account}")
    kept = {key: standing[key] for key in ("name", "labels", "annotations") if key in standing}
    found.site.api.create(accounts, {"metadata": kept})


def told(found: GpuNode, since: int, word: str) -> bool:
    """Say whether a line of the agent's log after so many has this word."""
    return any(word in str(line) for line in log_lines(found.agent)[since:])


@contextmanager
def without_old_names(found: GpuNode) -> Iterator[None]:
    """Change a setting meanwhile, after which the agent tells fewer figures."""
    before = found.site.api.get(SETTINGS)["data"]["settings.yaml"]
    found.site.configure(f"{before}\npluginMetrics: false\n")
    try:
        yield
    finally:
        found.site.configure(before)


def test_an_api_server_that_forgot_what_was_before(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """Containers crash and start while it is away, and nothing is missed when it is back."""
    uids = {pod_of(gpu_node.site, team, name)["metadata"]["uid"] for name in tenants}
    with speechless(gpu_node):
        crash_and_start(gpu_node, uids)
        for name in tenants:
            assert gpu_node.scrape().of(LIMIT, namespace=team, pod=name)
        version_passes(gpu_node)

    with without_old_names(gpu_node):
        wait_for(lambda: not gpu_node.scrape().of(OLD_LIMIT, podnamespace=team), within=RUN_WITHIN)
    for name, device in tenants.items():
        wait_for(again(gpu_node, team, name), within=RUN_WITHIN)
        assert device_of(gpu_node, pod_of(gpu_node.site, team, name)) == device
    gpu_node.site.create(team, hard(name="after"))
    assert device_of(gpu_node, running(gpu_node.site, team, "after")) != tenants["hard"]


def test_a_token_that_ran_out(gpu_node: GpuNode, team: str, tenants: dict[str, str]) -> None:
    """The agent goes on with what it knew, and catches up once kubelet has renewed its token."""
    since = len(log_lines(gpu_node.agent))
    gpu_node.agent.pause()
    try:
        with speechless(gpu_node):
            pass
        token_gone(gpu_node)
    finally:
        gpu_node.agent.resume()

    with without_old_names(gpu_node):
        wait_for(lambda: told(gpu_node, since, "401"), within=RUN_WITHIN)
        assert gpu_node.scrape().of(OLD_LIMIT, podnamespace=team)
        gpu_node.renew_token()
        wait_for(lambda: not gpu_node.scrape().of(OLD_LIMIT, podnamespace=team), within=RUN_WITHIN)
    undisturbed(gpu_node, team, tenants)
