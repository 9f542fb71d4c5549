"""The binding hook under other loads: many Bindings to one node, and a steady pace."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from statistics import median
from typing import Final

from benchmarks.report import p99
from benchmarks.storm_cluster import StormCluster
from benchmarks.storm_run import pods
from tests.builders.bindings import binding, review
from tests.cluster.api import Json
from tests.cluster.installation import GPU_NODES, PODS, UNVERIFIED, Installation

CROWD: Final = 64  # binds to one node at once
PACE: Final = 20  # binds per second
PACED: Final = 200  # of them
PATIENCE: Final = 10.0  # seconds; a hook has 5
HEADERS: Final = {"Content-Type": "application/json"}


def writes(cluster: StormCluster, node: str) -> int:
    """Bind a crowd of pods to *node* at once and return how often its ledger was written.

    Raises ``RuntimeError`` where a bind failed.
    """
    namespace, names = _create_pods(cluster, CROWD)
    barrier = threading.Barrier(CROWD)

    def bind(name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Binding", **binding(node=node)}
        body["metadata"] = {"name": name, "uid": names[name]}
        barrier.wait()
        cluster.api.create(f"{PODS.format(namespace)}/{name}/binding", body)

    before = _generation(cluster, node)
    with ThreadPoolExecutor(CROWD) as pool:
        failures = [f for f in [pool.submit(bind, name) for name in names] if f.exception()]
    if failures:
        raise RuntimeError(f"{len(failures)} of {CROWD} Bindings failed: {failures[0].exception()}")
    return _generation(cluster, node) - before


def pace(cluster: StormCluster, site: Installation, nodes: Sequence[str]) -> list[float]:
    """Return the seconds that the hook took for each of some binds at an even pace, as its caller.

    The reviews are sent as the API server sends them, over connections that are kept, and commit.
    Raises ``RuntimeError`` where one is not allowed.
    """
    namespace, names = _create_pods(cluster, PACED)
    idle: list[HTTPSConnection] = []
    reviews = [
        review(
            {**binding(node=node), "metadata": {"name": name, "uid": uid}},
            name=name,
            namespace=namespace,
        )
        for (name, uid), node in zip(names.items(), nodes, strict=False)
    ]

    def ask(body: bytes) -> float:
        connection = idle.pop() if idle else _connect(site.first.port)
        began = time.perf_counter()
        connection.request("POST", "/mutate/bindings", body, HEADERS)
        answer = json.loads(connection.getresponse().read())
        took = time.perf_counter() - began
        idle.append(connection)
        if not answer["response"]["allowed"]:
            raise RuntimeError(f"a Binding was refused: {answer['response']['status']}")
        return took

    try:
        return _ask_evenly(ask, reviews)
    finally:
        for connection in idle:
            connection.close()


def summary(seconds: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    return median(seconds) * 1000, p99(seconds) * 1000


def _create_pods(cluster: StormCluster, count: int) -> tuple[str, dict[str, str]]:
    """Create *count* pods that no scheduler sees and return their uids by name."""
    namespace = cluster.namespace()

    def without_scheduler(pod: Json) -> Json:
        return {**pod, "spec": {**pod["spec"], "schedulerName": "nobody"}}

    cluster.create(namespace, map(without_scheduler, pods(count)))
    listed = cluster.api.get(PODS.format(namespace))["items"]
    return namespace, {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in listed}


def _generation(cluster: StormCluster, node: str) -> int:
    return int(cluster.api.get(f"{GPU_NODES}/{node}")["metadata"]["generation"])


def _connect(port: int) -> HTTPSConnection:
    connection = HTTPSConnection("127.0.0.1", port, context=UNVERIFIED, timeout=PATIENCE)
    connection.connect()  # not counted: the API server keeps its connections too
    return connection


def _ask_evenly(ask: Callable[[bytes], float], bodies: Sequence[bytes]) -> list[float]:
    """Ask about each of *bodies* when it is due, however long others take."""
    began = time.monotonic()

    def ask_when_due(number: int, body: bytes) -> float:
        time.sleep(max(0.0, began + number / PACE - time.monotonic()))
        return ask(body)

    with ThreadPoolExecutor(PACE) as pool:
        return list(pool.map(ask_when_due, range(len(bodies)), bodies))
