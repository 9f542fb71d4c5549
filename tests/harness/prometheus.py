"""A Prometheus on loopback, which scrapes exporters of this process as our PodMonitors say."""

import contextlib
import http.server
import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.ports import free_port

READY_WITHIN: Final = 60.0  # seconds

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A pod to scrape: what its exporter answers, and where it would run."""

    job: str  # the name of its PodMonitor
    pod: str
    node: str
    exposition: Callable[[], bytes] | None  # None: it does not answer


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def query(self, expression: str) -> list[tuple[Labels, float]]:
        """Return the series of an instant query and their values; raises ``AssertionError``."""
        answer = self.read("/api/v1/query", query=expression)
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in answer["result"]]

    def read(self, path: str, **parameters: str) -> dict[str, Any]:
        """Return the data of an answer; raises ``AssertionError`` where it is an error."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{query}", timeout=30) as answer:  # noqa: S310 -- loopback
                body = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        data: dict[str, Any] = body["data"]
        return data


@contextlib.contextmanager
def prometheus(
    folder: Path, monitors: Sequence[Mapping[str, Any]], targets: Sequence[Target]
) -> Iterator[Prometheus]:
    """Lend a Prometheus that scrapes *targets* each second, as *monitors* say."""
    with contextlib.ExitStack() as stack:
        scraped = [(target, stack.enter_context(_exporter(target))) for target in targets]
        config = folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(scrape_config(monitors, scraped)))
        url = f"http://127.0.0.1:{free_port()}"
        command = (
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--log.level=warn",
        )
        with (folder / "log").open("wb") as log:
            process = stack.enter_context(
                subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            )
        stack.callback(process.terminate)
        running = Prometheus(url)
        _wait_until_ready(running, process, folder / "log")
        yield running


def scrape_config(
    monitors: Sequence[Mapping[str, Any]], targets: Sequence[tuple[Target, int]]
) -> dict[str, Any]:
    """Return the configuration that the operator would make of *monitors*."""
    jobs = []
    for monitor in monitors:
        name = monitor["metadata"]["name"]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        jobs.append(
            {
                "job_name": name,
                "honor_labels": endpoint["honorLabels"],
                "metrics_path": endpoint["path"],
                "static_configs": [
                    {"targets": [f"127.0.0.1:{port}"], "labels": _discovered(target)}
                    for target, port in targets
                    if target.job == name
                ],
                "relabel_configs": [_relabelling(each) for each in endpoint["relabelings"]],
            }
        )
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": jobs,
    }


def _discovered(target: Target) -> dict[str, str]:
    """Return what the operator knows of a pod, and the labels that it gives every target."""
    return {
        "__meta_kubernetes_pod_name": target.pod,
        "__meta_kubernetes_pod_node_name": target.node,
        "namespace": "vgpu-admission-system",
        "pod": target.pod,
        "container": "main",
        "endpoint": "metrics",
    }


def _relabelling(rule: Mapping[str, Any]) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(key, key): value for key, value in rule.items()}


@contextlib.contextmanager
def _exporter(target: Target) -> Iterator[int]:
    """Yield the port of an exporter; where it does not answer, nobody listens there."""
    if target.exposition is None:
        yield free_port()
        return
    exposition: Callable[[], bytes] = target.exposition

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="exporter")
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _wait_until_ready(running: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_WITHIN
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):  # urllib's errors are OSErrors
            urllib.request.urlopen(f"{running.url}/-/ready", timeout=5).close()  # noqa: S310 -- loopback
            return
        time.sleep(0.1)
    raise AssertionError(f"Prometheus does not serve: {log.read_text()[-2000:]}")
