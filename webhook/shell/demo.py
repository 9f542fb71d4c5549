"""The demo command: the real webhook on loopback over a fleet file, and pods sent through it."""

import asyncio
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TextIO

from allocator.catalog.boards import bare_name
from allocator.core.lines import Line, Span, Tone, row
from allocator.core.manifest import Made
from allocator.core.settings import Fleet, Settings
from allocator.model.gpu import Snapshot
from allocator.shell.files import Streams, UnusableError, named, pods_of, read
from allocator.shell.terminal import show
from certs.core.issue import Names, Terms
from certs.shell.app import throwaway
from certs.shell.reload import Serving
from kube.client import version
from webhook.core.mutate import Surroundings
from webhook.core.plan import plan
from webhook.core.plantext import lines
from webhook.core.podwire import Pod
from webhook.shell.admission import Admission, Remember, Reviewer, View
from webhook.shell.app import routes
from webhook.shell.caller import HookError, answered, review, session, told
from webhook.shell.metrics import Metrics
from webhook.shell.plan import ERROR, surroundings
from webhook.shell.server import Listen, serving

PATH: Final = "/mutate/pods"
SETTINGS: Final = Settings(fleet=Fleet.CLOSED)
SAMPLES: Final[Traversable] = resources.files("webhook") / "samples"
DRAIN: Final = 1  # seconds that open requests get at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
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
class Sample:
    """A pod to send, and the name of the file that makes it."""

    file: str
    made: Made[Pod]


class Onlooker:
    """A journal that shows each decision in a line, once the demo's own pods are through."""

    def __init__(self, output: TextIO) -> None:
        """Show nothing yet."""
        self._output = output
        self.awake = False

    def remember(self, record: Mapping[str, Any], /) -> None:
        """Show what was decided about a pod that somebody else sent."""
        if self.awake:
            why = [record.get("rule", ""), *(one["text"] for one in record.get("findings", ()))]
            whose = f"{record['namespace']}/{record['name'] or record['generate_name']}"
            text = "; ".join(filter(None, [f"{whose} {record['decision']}", *why]))
            show(row("received", text), self._output)


async def run(options: Options, streams: Streams) -> int:
    """Serve, send, show; return the exit code."""
    try:
        around = _around(options.fleet, streams)
        samples = list(_samples(options.files, streams))
        await _shown(options, samples, around, streams=streams)
    except (UnusableError, HookError) as error:
        streams.errors.write(f"error: {error}\n")
        return ERROR
    return 0


def _around(fleet: str | None, streams: Streams) -> Surroundings:
    if fleet is not None:
        return surroundings(fleet=read(fleet, streams.input), name=fleet, settings=SETTINGS)
    text = (SAMPLES / "fleet.yaml").read_text(encoding="utf-8")
    return surroundings(fleet=text, name="fleet.yaml", settings=SETTINGS)


def _samples(files: Sequence[str], streams: Streams) -> Iterator[Sample]:
    if files:
        texts = [(name, read(name, streams.input)) for name in files]
    else:
        shipped = sorted((SAMPLES / "pods").iterdir(), key=lambda file: file.name)
        texts = [(file.name, file.read_text(encoding="utf-8")) for file in shipped]
    for name, text in texts:
        for made in pods_of(name, text, Pod, errors=streams.errors):
            yield Sample(file=named(name), made=made)


async def _shown(
    options: Options, samples: Sequence[Sample], around: Surroundings, *, streams: Streams
) -> None:
    listen, output = options.listen, streams.output
    authority, live = _certificates(listen)
    onlooker = Onlooker(output)
    app = _application(around, onlooker, live)
    async with AsyncExitStack() as stack:
        server = serving(app, listen, context=live.context, drain=DRAIN, at_once=app.at_once)
        try:
            port = await stack.enter_async_context(server)
        except OSError as error:
            where = f"{listen.host}:{listen.port}"
            why = (error.strerror or str(error)).lower()
            raise UnusableError(f"{where}: {why}; accepted: a free port of ours") from error
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        url = f"https://{host}:{port}{PATH}"
        show(_opening(url, around.snapshot), output)
        async with session(authority) as calls:
            for sample in samples:
                answer = told(await answered(calls, url, sample.made), sample.made, sample.file)
                found = replace(plan(sample.made, around), answer=answer)
                show([*lines(found, sample.file, tried=False), ()], output)
        if options.stay:
            onlooker.awake = True
            with _at_hand(authority, samples[0]) as folder:
                show(_hint(options.again, url, folder), output)
                await _interrupted()


def _certificates(listen: Listen) -> tuple[bytes, Serving]:
    """Return an authority's certificate, and what serves a pair of its."""
    try:
        names = Names(dns=("localhost",), addresses=(ip_address(listen.host),))
    except ValueError:
        names = Names(dns=(listen.host,))
    authority, pair = throwaway(Terms(names=names))
    live = Serving()
    live.load(pair)
    return authority, live


def _application(around: Surroundings, journal: Remember, live: Serving) -> Admission:
    metrics = Metrics(version=version())
    reviewer = Reviewer(
        view=lambda _: View(around=around), journal=journal, metrics=metrics, version=version()
    )
    return Admission(reviewer, routes(metrics, lambda: live.ready))


def _opening(url: str, snapshot: Snapshot) -> Iterator[Line]:
    gpus = [gpu for node in snapshot.nodes.values() for gpu in node.gpus]
    busy = sum(bool(gpu.grants) for gpu in gpus)
    kinds = Counter(f"{bare_name(gpu.model)} {gpu.mode}" for gpu in gpus)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    yield from row("webhook", url)
    yield from row("fleet", f"{len(snapshot.nodes)} nodes, {len(gpus)} GPUs, {busy} in use")
    yield from row("", counted)
    yield ()


@contextmanager
def _at_hand(authority: bytes, sample: Sample) -> Iterator[str]:
    """Lend a folder with all that a caller needs: whom to trust, and a review to send."""
    with tempfile.TemporaryDirectory(prefix="vgpu-demo-") as name:
        (Path(name) / "ca.crt").write_bytes(authority)
        (Path(name) / "review.json").write_bytes(review(sample.made))
        yield name


async def _interrupted() -> None:
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    await interrupted.wait()


def _hint(again: str, url: str, folder: str) -> Iterator[Line]:
    yield (Span("The webhook stays up until Ctrl-C. To send more:", Tone.STRONG),)
    yield (Span(f"  {again} demo --once my.yaml"),)
    yield (Span(f"  curl --cacert {folder}/ca.crt \\"),)
    yield (Span(f"       --data @{folder}/review.json \\"),)
    yield (Span(f"       {url}"),)
    yield ()
