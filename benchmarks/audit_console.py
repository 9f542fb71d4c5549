"""The real console on a cluster of 5,000 nodes: how much memory it takes while it works.

The API server is real and holds nodes, ledgers and pods. Records arrive over mutual TLS from a
sender that the API server knows, and pages are asked for meanwhile.
"""

import http.client
import ssl
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from allocator.delivery.batch_text import BatchText
from benchmarks.audit_fill import in_order
from benchmarks.audit_reader import resident_mb
from benchmarks.audit_records import RecordMaker
from benchmarks.scale_cluster import Fleet, large_cluster
from benchmarks.scale_load import cpu_seconds
from compiled import ROOT
from console.records.rows import StoredRecord
from console.serve.console import AUDIENCE
from tests.cluster.installation import SYSTEM, Installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.fakes.pki import Authority

HOST: Final = "127.0.0.1"
PAGES: Final = (
    "/",
    "/decisions",
    "/decisions?ns=team-001",
    "/pods",
    "/nodes",
    "/nodes/gpu-00001",
    "/fit?memory=15000&cores=10&count=1&ns=team-001",
    "/namespaces",
    "/waiting",
    "/records",
    "/settings",
    "/health",
    "/reasons",
)
ROUNDS: Final = 5
AT_ONCE: Final = 4  # pages
PERIOD: Final = 12 * 3_600_000  # milliseconds that the records sent spread over
DECISIONS: Final = 2000  # whose records are sent
SYNCED: Final = 120.0  # seconds
SETTLED: Final = 5.0  # seconds
# Each of which must have been listed before the console is at rest.
COLLECTIONS: Final = (
    "/apis/vgpu-admission.io/v1alpha1/gpunodes",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/pods",
)
# The image has no rich, which structlog would load where it is installed.
_AS_IN_THE_IMAGE: Final = """
import runpy, sys
sys.modules["rich"] = None
del sys.argv[0]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def console_memory(
    programs: Mapping[str, Path], folder: Path, *, store: str, fleet: Fleet
) -> dict[str, float]:
    """Return the most memory in MB that the console takes with *store*, and what it did."""
    cluster = folder / "cluster"
    cluster.mkdir()
    with (
        large_cluster(programs, cluster, fleet, tree=ROOT) as site,
        _console(site, folder, store) as (process, ports),
    ):
        idle = resident_mb(process.pid)
        seconds = cpu_seconds(process.pid)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            sent = pool.submit(_send_all, site, ports["records"], folder)
            pages = list(pool.map(lambda page: _page_ms(ports["pages"], page), PAGES * ROUNDS))
            sent.result()
        return {
            "console_idle_rss_mb": idle,
            "console_rss_mb": resident_mb(process.pid),
            "console_cpu_s": cpu_seconds(process.pid) - seconds,
            "console_page_max_ms": max(pages),
        }


@contextmanager
def _console(
    site: Installation, folder: Path, store: str
) -> Iterator[tuple[Process, Mapping[str, int]]]:
    """Run a console until it knows the whole cluster."""
    files, ports = folder / "files", {name: free_port() for name in ("pages", "records", "health")}
    files.mkdir()
    authority = Authority("console")
    issued = authority.issue("server")
    for name, content in (
        ("ca.crt", authority.certificate),
        ("tls.crt", issued.certificate),
        ("tls.key", issued.key),
    ):
        (files / name).write_bytes(content)
    command: list[str | Path] = [
        *(sys.executable, "-c", _AS_IN_THE_IMAGE, ROOT / "vgpu.py", "console"),
        "--insecure-read-all",
        *(f"--listen={HOST}:{ports['pages']}", f"--records={HOST}:{ports['records']}"),
        *(f"--health={HOST}:{ports['health']}", f"--cert-files={files}", "--drain=1"),
        *(f"--store={store}", f"--kubeconfig={site.plane.kubeconfig}"),
    ]
    file = folder / "console.log"
    process = Process("console", command, file)
    process.start(lambda: _has_listed(file), within=SYNCED)
    try:
        time.sleep(SETTLED)
        yield process, ports
    finally:
        process.stop()


def _has_listed(file: Path) -> bool:
    """Say whether the console has logged that it knows all collections."""
    lines = [line for line in file.read_text().splitlines() if '"event": "listed"' in line]
    return all(any(f'"path": "{path}"' in line for line in lines) for path in COLLECTIONS)


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
    return body


def _page_ms(port: int, path: str) -> float:
    started = time.perf_counter()
    _get(port, path)
    return (time.perf_counter() - started) * 1000


def _send_all(site: Installation, port: int, folder: Path) -> None:
    """Send the records of many decisions as a webhook does."""
    now = int(time.time() * 1000)
    maker = RecordMaker(seed=3, start=now - PERIOD, step=PERIOD / DECISIONS, nodes=5000)
    records = [
        one for one in in_order(maker.decisions(DECISIONS), before=now) if _is_of_webhook(one)
    ]
    files = folder / "files"
    context = ssl.create_default_context(cafile=str(files / "ca.crt"))
    context.load_cert_chain(files / "tls.crt", files / "tls.key")
    account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/vgpu-webhook/token"
    spec = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600}}
    token = site.api.create(account, spec).body["status"]["token"]
    connection = http.client.HTTPSConnection(HOST, port, context=context, timeout=60)
    for batch in _bodies(records):
        connection.request("POST", "/v3/records", batch, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        told = answer.read()
        if answer.status != http.HTTPStatus.OK or b'"rejected":[]' not in told:
            raise RuntimeError(f"records: {answer.status} {told[:300]!r}")


def _is_of_webhook(stored: StoredRecord) -> bool:
    return stored.record.component == "webhook"


def _bodies(records: Iterable[StoredRecord]) -> Iterator[bytes]:
    """Yield the batches that a sender makes of *records*."""
    encoder, batch = msgspec.json.Encoder(), BatchText()
    for one in records:
        line = encoder.encode(one.record) + b"\n"
        if not batch.has_room(line, None):
            yield batch.text()
            batch = BatchText()
        batch.add(line, None)
    yield batch.text()
