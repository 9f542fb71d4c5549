"""A real kube-scheduler that asks us about nodes: it binds where GPUs fit, at the first attempt."""

import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.ledger.decode import decode
from allocator.model.request import Mode
from tests.builders.model import A30, T4, nodes_of
from tests.builders.pods import GPU_MEM, MEMORY, NUMBER, container, pod
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.extender import WITHIN, add_extender, apply, asked, extender
from tests.cluster.installation import GPU_NODES, SYSTEM, Installation
from tests.cluster.scheduler import bound, half, kube_scheduler, refusals
from webhook.serve.certificates import CLIENT_SECRET


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with one GPU to cut, four to share, and two replicas to ask."""
    cut, soft = nodes_of(1, A30, mode=Mode.MIG, name="cut"), nodes_of(4, T4, name="soft")
    with asked(programs, tmp_path_factory.mktemp("extender"), cut, soft) as found:
        yield found


def notes(site: Installation, team: str, reason: str) -> list[str]:
    events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return [event["note"] for event in events if event["reason"] == reason]


def test_what_does_not_fit_is_not_even_tried(site: Installation) -> None:
    """Sums would admit a third pod: two are bound, the third hears why it is not, and how much."""
    team = site.namespace()
    for number, name in enumerate(("a", "b"), start=1):
        site.create(team, half(name))
        wait_for(lambda expected=number: len(bound(site, team)) == expected, within=WITHIN)  # type: ignore[misc]
    site.create(team, half("c"))

    (told,) = wait_for(lambda: notes(site, team, "VgpuWaiting"), within=WITHIN)
    texts = wait_for(lambda: refusals(site, team), within=WITHIN)

    ledger = decode(site.api.get(f"{GPU_NODES}/cut"))
    masks = [grant.placed.mask for grant in ledger.node.gpus[0].grants if grant.placed]
    assert sorted(masks) == [0b0011, 0b1100]
    assert "1 no free slots for the MIG profile" in texts[0]
    assert "1 GPUs in another mode" in texts[0]
    assert told.startswith("NoMatchingGeometry: on 2 nodes, ")


def test_a_crash_in_the_middle_costs_no_pod(site: Installation) -> None:
    """One replica is killed while pods are being placed; the other answers for it."""
    team = site.namespace()
    victim = site.replicas[1]
    limits = {NUMBER: 1, MEMORY: 1000}
    for number in range(9):
        written = pod(container(limits=limits), annotations={"volcano.sh/vgpu-mode": "hami-core"})
        site.create(team, written | {"metadata": {**written["metadata"], "name": f"p{number}"}})
        if number == 3:
            victim.process.kill()

    try:
        wait_for(lambda: len(bound(site, team)) == 9, within=2 * WITHIN)
    finally:
        victim.start()

    entries = decode(site.api.get(f"{GPU_NODES}/soft")).entries
    assert len([entry for entry in entries if entry.namespace == team]) == 9


def test_gpushares_own_configuration_works(
    site: Installation, programs: Mapping[str, Path]
) -> None:
    """Filter and bind under the path and for the resource that gpushare's documents name.

    The bind decides nothing: the promise is made by our hook, as for any other Binding.
    """
    apply(site, "bind.yaml")
    site.configure("extenderBind: true")
    _, port = add_extender(site)
    room = {GPU_MEM: "64"}
    site.api.patch("/api/v1/nodes/soft/status", {"status": {"capacity": room, "allocatable": room}})
    documented = {
        "urlPrefix": f"http://127.0.0.1:{port}/gpushare-scheduler",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "enableHTTPS": False,
        "nodeCacheCapable": True,
        "managedResources": [{"name": GPU_MEM, "ignoredByScheduler": False}],
        "ignorable": False,
    }
    scheduler = kube_scheduler(
        programs["kube-scheduler"],
        site.plane,
        extenders=[documented],
        profiles=[{"schedulerName": "gpushare"}],
    )
    team = site.namespace()

    site.create(team, pod(container(limits={GPU_MEM: 2}), schedulerName="gpushare"))

    try:
        wait_for(lambda: bound(site, team), within=WITHIN)
    finally:
        scheduler.stop()
    (entry,) = [e for e in decode(site.api.get(f"{GPU_NODES}/soft")).entries if e.namespace == team]
    assert [grant.memory for grant in entry.containers[0].grants] == [2048]


CLIENT = f"/api/v1/namespaces/{SYSTEM}/secrets/{CLIENT_SECRET}"


def test_off_loopback_only_schedulers_are_heard(
    site: Installation, programs: Mapping[str, Path]
) -> None:
    """The Secret that we keep has all that a scheduler needs; nobody else is answered anything."""
    _, port = add_extender(site, "0.0.0.0")  # noqa: S104 -- all there are: one machine's
    held = wait_for(lambda: kept_client(site), within=WITHIN)
    verified = {
        "serverName": "127.0.0.1",
        "caData": held["ca.crt"],
        "certData": held["tls.crt"],
        "keyData": held["tls.key"],
    }
    for verb in ("filter", "prioritize", "preempt", "bind"):
        with pytest.raises(OSError, match=r"certificate required|reset|EOF|closed"):
            forge(port, verb, held["ca.crt"])
    scheduler = kube_scheduler(
        programs["kube-scheduler"],
        site.plane,
        extenders=[
            extender(port, enableHTTPS=True, tlsConfig=verified)
            | {"urlPrefix": f"https://127.0.0.1:{port}/extender"}
        ],
        profiles=[{"schedulerName": "verifying"}],
    )
    team = site.namespace()

    site.create(team, pod(schedulerName="verifying"))

    try:
        wait_for(lambda: bound(site, team), within=WITHIN)
    finally:
        scheduler.stop()


def kept_client(site: Installation) -> Json:
    """Return what is in the Secret for schedulers, in base64; nothing until it is there."""
    try:
        held: Json = site.api.get(CLIENT)["data"]
    except ApiError:
        return {}
    return held


def forge(port: int, verb: str, bundle: str) -> None:
    """Ask over TLS, verified but without a certificate of one's own."""
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    with contextlib.closing(connection):
        connection.request("POST", f"/extender/{verb}", b"{}")
        connection.getresponse()


def test_a_bind_must_be_enabled(site: Installation) -> None:
    """Without the setting the extender posts no Binding, whoever asks."""
    site.configure("extenderBind: false")
    replica, port = add_extender(site)
    team = site.namespace()
    nobodys = pod(schedulerName="nobody")  # who would bind it otherwise
    uid = site.stored(team, nobodys)["metadata"]["uid"]
    wait_for(lambda: replica.obeys("extenderBind: false"))
    args = {"PodName": "p", "PodNamespace": team, "PodUID": uid, "Node": "soft"}

    answer = ask(port, "bind", args)

    assert "extenderBind" in answer["Error"]
    assert not bound(site, team)


def ask(port: int, verb: str, question: Json) -> Json:
    """Ask as a scheduler does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        connection.request("POST", f"/extender/{verb}", json.dumps(question).encode())
        answer = connection.getresponse()
        assert answer.status == 200
        found: Json = json.loads(answer.read())
        return found
