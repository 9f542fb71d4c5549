"""The demo command: the real webhook on loopback over a fleet file, and pods sent through it."""

import asyncio
import secrets
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import resources
from importlib.resources.abc import Traversable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TextIO

from allocator.audit.record_source import ENTROPY_BITS
from allocator.audit.record_writer import RecordSink
from allocator.catalog.boards import bare_name
from allocator.cli.files import Streams, UnusableError, display_name, pods_of, read
from allocator.cli.http_server import Listen
from allocator.cli.terminal import show
from allocator.cluster.configmaps import text_digest
from allocator.config.fleet_file import MAX_FLEET
from allocator.config.manifest import ManifestPod
from allocator.config.settings import settings_of
from allocator.model.gpu import Snapshot
from allocator.model.untrusted import inert_lines
from allocator.report.terminal_lines import Line, TextSpan, Tone, counted, row
from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from certs.tls_server import ServingPair
from kube.client import version
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.plan.hook_client import HookError, ask_hook, review, session, with_user_message
from webhook.plan.plan import plan
from webhook.plan.plan_cli import ERROR, surroundings
from webhook.plan.plan_text import lines
from webhook.records.trail import audit_trail
from webhook.review.pod_schema import Pod
from webhook.serve.admission import AdmissionApp, PodHandler
from webhook.serve.http import routes, serve_app
from webhook.serve.metrics import WebhookMetrics

PATH: Final = "/mutate/pods"
SETTINGS_TEXT: Final = "fleet: closed\n"
SETTINGS: Final = settings_of(SETTINGS_TEXT)
INSTANCE: Final = "vgpu-admission-demo"
SAMPLES: Final[Traversable] = resources.files("webhook") / "samples"
DRAIN: Final = 1  # seconds that open requests get at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command line decides; without *files* the samples are sent.

    ``stay`` keeps the webhook up until the program is interrupted, and ``again`` is how the
    program was called.
    """

    files: Sequence[str]
    fleet: str | None
    listen: Listen
    stay: bool
    again: str = "vgpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePod:
    """A pod to send, and the name of the file that makes it."""

    file: str
    made: ManifestPod[Pod]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCompanion:
    """What runs beside a webhook that stays up.

    ``address`` is what is shown of it, a label and a text, and ``sink`` takes all records too.
    """

    address: tuple[str, str]
    sink: RecordSink


Companion = Callable[[AdmissionContext], AbstractAsyncContextManager[DemoCompanion]]


class DecisionPrinter:
    """A journal that shows each decision in a line, once the demo's own pods are through."""

    def __init__(self, output: TextIO, also: RecordSink | None = None) -> None:
        """Show nothing yet; *also* takes all records."""
        self._output = output
        self._also = also
        self.awake = False

    def remember(self, record: Mapping[str, Any], /) -> None:
        """Show what was decided about a pod that somebody else sent."""
        if self._also is not None:
            self._also.remember(record)
        if self.awake and record["kind"] == "admission":
            why = [record.get("rule", ""), *(one["text"] for one in record.get("findings", ()))]
            whose = f"{record['namespace']}/{record['pod'] or record['generate_name']}"
            text = "; ".join(filter(None, [f"{whose} {record['outcome']}", *why]))
            show(row("received", text), self._output)


async def run(options: DemoOptions, streams: Streams, beside: Companion | None = None) -> int:
    """Serve, send, show; return the exit code.

    *beside* makes what runs beside a webhook that stays up, from what its decisions rest on.
    """
    try:
        context = _context(options.fleet, streams)
        samples = list(_samples(options.files, streams))
        async with AsyncExitStack() as stack:
            companion = None
            if options.stay and beside is not None:
                companion = await stack.enter_async_context(beside(context))
            await _show(options, samples, context, output=streams.output, companion=companion)
    except (UnusableError, HookError) as error:
        streams.errors.write(f"error: {inert_lines(str(error))}\n")
        return ERROR
    return 0


def _context(fleet: str | None, streams: Streams) -> AdmissionContext:
    if fleet is not None:
        return surroundings(
            fleet=read(fleet, streams.input, most=MAX_FLEET), name=fleet, settings=SETTINGS
        )
    text = (SAMPLES / "fleet.yaml").read_text(encoding="utf-8")
    return surroundings(fleet=text, name="fleet.yaml", settings=SETTINGS)


def _samples(files: Sequence[str], streams: Streams) -> Iterator[SamplePod]:
    if files:
        texts = [(name, read(name, streams.input)) for name in files]
    else:
        shipped = sorted((SAMPLES / "pods").iterdir(), key=lambda file: file.name)
        texts = [(file.name, file.read_text(encoding="utf-8")) for file in shipped]
    for name, text in texts:
        for made in pods_of(name, text, Pod, errors=streams.errors):
            yield SamplePod(file=display_name(name), made=made)


async def _show(
    options: DemoOptions,
    samples: Sequence[SamplePod],
    context: AdmissionContext,
    *,
    output: TextIO,
    companion: DemoCompanion | None,
) -> None:
    listen = options.listen
    authority, live = _certificates(listen)
    onlooker = DecisionPrinter(output, None if companion is None else companion.sink)
    app = _application(context, onlooker, live)
    async with AsyncExitStack() as stack:
        server = serve_app(app, listen, context=live.context, drain=DRAIN, at_once=app.at_once)
        try:
            port = await stack.enter_async_context(server)
        except OSError as error:
            where = f"{listen.host}:{listen.port}"
            why = (error.strerror or str(error)).lower()
            raise UnusableError(f"{where}: {why}; accepted: a free local address") from error
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        url = f"https://{host}:{port}{PATH}"
        show(_intro_lines(url, context.snapshot, companion), output)
        async with session(authority) as calls:
            for sample in samples:
                answer = with_user_message(
                    await ask_hook(calls, url, sample.made), sample.made, sample.file
                )
                answered = replace(plan(sample.made, context), answer=answer)
                show([*lines(answered, sample.file, tried=False), ()], output)
        if options.stay:
            onlooker.awake = True
            with _example_folder(authority, samples[0]) as folder:
                show(_hint(options.again, url, folder), output)
                await _wait_interrupt()


def _certificates(listen: Listen) -> tuple[bytes, ServingPair]:
    """Return an authority's certificate, and what serves a pair of its."""
    try:
        names = Names(dns=("localhost",), addresses=(ip_address(listen.host),))
    except ValueError:
        names = Names(dns=(listen.host,))
    authority, pair = throwaway(IssueParameters(names=names))
    live = ServingPair()
    live.load(pair)
    return authority, live


def _application(context: AdmissionContext, journal: RecordSink, live: ServingPair) -> AdmissionApp:
    metrics = WebhookMetrics(version=version())
    digest = text_digest(SETTINGS_TEXT)
    trail = audit_trail(
        journal,
        instance=INSTANCE,
        version=version(),
        entropy=secrets.randbits(ENTROPY_BITS),
        now=lambda: datetime.now(UTC),
    )
    reviewer = PodHandler(
        view=lambda _: AdmissionView(context=context, settings_digest=digest, age=0.0),
        records=trail.pass_records(now=time.time_ns),
        metrics=metrics,
    )
    return AdmissionApp(reviewer, routes(metrics, lambda: live.ready))


def _intro_lines(url: str, snapshot: Snapshot, companion: DemoCompanion | None) -> Iterator[Line]:
    gpus = [gpu for node in snapshot.nodes.values() for gpu in node.gpus]
    busy = sum(bool(gpu.grants) for gpu in gpus)
    kinds = Counter(f"{bare_name(gpu.model)} {gpu.mode}" for gpu in gpus)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    yield from row("webhook", url)
    if companion is not None:
        yield from row(*companion.address, Tone.STRONG)
    yield from row(
        "fleet",
        f"{counted(len(snapshot.nodes), 'node')}, {counted(len(gpus), 'GPU')}, {busy} in use",
    )
    yield from row("", by_kind)
    yield ()


@contextmanager
def _example_folder(authority: bytes, sample: SamplePod) -> Iterator[str]:
    """Lend a folder with all that a caller needs: whom to trust, and a review to send."""
    with tempfile.TemporaryDirectory(prefix="vgpu-demo-") as name:
        (Path(name) / "ca.crt").write_bytes(authority)
        (Path(name) / "review.json").write_bytes(review(sample.made))
        yield name


async def _wait_interrupt() -> None:
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    await interrupted.wait()


def _hint(again: str, url: str, folder: str) -> Iterator[Line]:
    yield (TextSpan("The webhook stays up until Ctrl-C. To send more:", Tone.STRONG),)
    yield (TextSpan(f"  {again} demo --once my.yaml"),)
    yield (TextSpan(f"  curl --cacert {folder}/ca.crt \\"),)
    yield (TextSpan(f"       --data @{folder}/review.json \\"),)
    yield (TextSpan(f"       {url}"),)
    yield ()
