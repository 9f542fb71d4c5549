"""A real kube-scheduler goes on with pods that found no room, soon after there is some."""

import http.server
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from allocator.ledger.decode import decode
from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import T4, nodes_of
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import MERGE, Json, wait_for
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.site import Who

ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110"}
MORE_THAN_THERE_IS = {NUMBER: "10", MEMORY: "100000"}
BACKOFF = 10.0  # seconds; the scheduler's own, at most
SLACK = 2.0 + 3.0  # what we promise, and what a busy machine adds


@dataclass(slots=True)
class Extender:
    """An extender that lets pods pass while ``open``; a stub, because only its word counts here."""

    open: bool = True
    asked: int = 0
    server: http.server.ThreadingHTTPServer = field(init=False)

    def __enter__(self) -> Self:
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._answering())
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def config(self) -> Json:
        return {
            "urlPrefix": f"http://127.0.0.1:{self.server.server_address[1]}",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "managedResources": [{"name": NUMBER, "ignoredByScheduler": False}],
        }

    def _answering(self) -> type[http.server.BaseHTTPRequestHandler]:
        extender = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                extender.asked += 1
                names = asked["NodeNames"]
                passed = names if extender.open else []
                failed = {} if extender.open else dict.fromkeys(names, "no room")
                body = json.dumps({"NodeNames": passed, "FailedNodes": failed}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Answers


@dataclass(slots=True)
class Scene:
    """An installation with one GPU, and a scheduler that asks an extender."""

    site: Installation
    extender: Extender

    def bound(self, team: str) -> set[str]:
        pods = self.site.api.get(PODS.format(team))["items"]
        return {found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")}

    def report(self, **status: object) -> None:
        headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
        path = f"{GPU_NODES}/soft/status"
        self.site.api.request("PATCH", path, {"status": status}, headers=headers)

    def hold(self, team: str) -> None:
        """Bind pod ``first``, which takes most of the GPU, and let its containers run."""
        self.site.create(team, most_of_it("first"))
        wait_for(lambda: "first" in self.bound(team), within=BACKOFF + SLACK)
        entries = decode(self.site.api.get(f"{GPU_NODES}/soft")).entries
        self.report(held=[entry.uid for entry in entries], observedGeneration=10**6)

    def quiet(self) -> None:
        """Return once the scheduler has not tried for longer than it backs off."""
        asked, since = self.extender.asked, time.monotonic()
        deadline = since + 60
        while time.monotonic() - since < BACKOFF + 1 and time.monotonic() < deadline:
            if self.extender.asked != asked:
                asked, since = self.extender.asked, time.monotonic()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def scene(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("waking")
    with installation(programs, folder) as site, Extender() as extender:
        site.add_node(nodes_of(1, T4, name="soft"))
        site.wait_for_models("T4")
        room = ROOM | MORE_THAN_THERE_IS
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        site.api.patch("/api/v1/nodes/soft", {"spec": {"taints": []}})
        site.api.patch("/api/v1/nodes/soft/status", {"status": status})
        program = programs["kube-scheduler"]
        scheduler = kube_scheduler(program, site.plane, extenders=[extender.config])
        yield Scene(site, extender)
        scheduler.stop()


@pytest.fixture
def team(scene: Scene) -> Iterator[str]:
    """Return a namespace whose pods and promises go with the test."""
    scene.extender.open = True
    name = scene.site.namespace()
    yield name
    scene.site.api.delete(PODS.format(name), {"gracePeriodSeconds": 0})
    scene.report(held=[], observedGeneration=10**6)
    wait_for(lambda: not decode(scene.site.api.get(f"{GPU_NODES}/soft")).entries)


def most_of_it(name: str) -> Json:
    written = pod(
        container(limits={NUMBER: 1, MEMORY: 10000}),
        annotations={"volcano.sh/vgpu-mode": "hami-core"},
    )
    return written | {"metadata": {**written["metadata"], "name": name}}


def test_a_refused_bind_is_tried_again_when_its_agent_lets_go(scene: Scene, team: str) -> None:
    """The scheduler backs off and comes again by itself: nothing parks the pod."""
    scene.hold(team)
    scene.site.create(team, most_of_it("second"))
    scene.site.api.delete(f"{PODS.format(team)}/first", {"gracePeriodSeconds": 0})
    wait_for(lambda: refused(scene, team), within=30)

    scene.report(held=[])

    assert wait_for(lambda: "second" in scene.bound(team), within=BACKOFF + SLACK)


def refused(scene: Scene, team: str) -> list[str]:
    events = scene.site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    return [e["note"] for e in events if "denied the request" in e["note"]]


@pytest.mark.timeout(600)
def test_a_parked_pod_is_woken_when_its_agent_lets_go(scene: Scene, team: str) -> None:
    """An extender rejected it, the end of the first pod came too early; else it waits 5 minutes."""
    scene.hold(team)
    scene.extender.open = False
    scene.site.create(team, most_of_it("second"))
    scene.site.api.delete(f"{PODS.format(team)}/first", {"gracePeriodSeconds": 0})
    scene.quiet()
    asked = scene.extender.asked

    scene.extender.open = True
    time.sleep(3.0)
    assert scene.extender.asked == asked  # parked: nobody has told the scheduler
    scene.report(held=[])

    assert wait_for(lambda: "second" in scene.bound(team), within=SLACK)
