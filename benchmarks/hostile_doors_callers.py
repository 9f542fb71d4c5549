"""A: who may talk to a replica, and what one caller may cost or keep."""

import asyncio
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Final

from allocator.cli.http_server import Listen
from allocator.config.settings import DEFAULTS, settings_of
from benchmarks.hostile_door import door
from benchmarks.webhook_server import ChangingInventory, reviewer
from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from certs.tls_server import ServingPair
from webhook.caller.callers import KnownCallers
from webhook.caller.hook_paths import HOOK_PATHS, HookPaths
from webhook.serve.admission import LARGEST_BODY, AdmissionApp, PodHandler
from webhook.serve.extender import ExtenderService

Message = MutableMapping[str, Any]
TOKEN: Final = "a1" * 32
GONE: Final[Message] = {"type": "http.disconnect"}
PIECE: Final[Message] = {"type": "http.request", "body": b"{", "more_body": True}
START: Final = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",'
)
MOST: Final = 4  # reviews at a time, of the replica that loses its callers


@door
def forged_paths() -> Iterator[str]:
    """A.1: hooks answer who knows the secret."""
    paths = HookPaths((TOKEN,))
    for hook in set(HOOK_PATHS.values()):
        guesses = ("", "/", "/" + "0" * 64, f"/{TOKEN[:-1]}", f"/{TOKEN}x", f"/{TOKEN.upper()}")
        for guess in guesses:
            if paths.hook_of(hook + guess) is not None:
                yield hook + guess
    if HookPaths(()).hook_of("/mutate/pods") is not None:
        yield "before any secret is known"


@door
def unknown_schedulers() -> Iterator[str]:
    """A.2: the extender serves no strangers where others reach it."""
    service = object.__new__(ExtenderService)
    for host in ("0.0.0.0", "::", "10.0.0.1", "extender.example.com"):  # noqa: S104 -- all there are
        serving = ExtenderService.serve(service, Listen(host, 0), lambda *_: None, drain=0)
        try:
            serving.gen.asend(None).send(None)
        except ValueError:
            continue
        except StopIteration:
            pass
        yield host
    _, pair = throwaway(IssueParameters(names=Names(dns=("localhost",))))
    mutual = ServingPair(mutual=True)
    mutual.load(pair)
    if mutual.ready:
        yield "a port without authorities"


@door
def status_on_the_port_of_hooks() -> Iterator[str]:
    """A.2: metrics and states are told on their own port alone."""
    app = AdmissionApp(_reviewer(), paths=HookPaths((TOKEN,)))
    for path in ("/metrics", "/healthz", "/readyz", "/livez", f"/metrics/{TOKEN}", "/", ""):
        status, _ = asyncio.run(_posted(app, path, ({"type": "http.request", "body": b""},)))
        if status != 404:  # noqa: PLR2004 -- of HTTP
            yield f"{path}: {status}"


@door
def callers_from_elsewhere() -> Iterator[str]:
    """A.1: where sources are listed, nobody else is answered."""
    settings = settings_of('reviewSources: ["10.0.0.0/8"]')
    callers = KnownCallers(paths=HookPaths((TOKEN,)), settings=lambda: settings)
    for host in ("11.1.2.3", "::ffff:11.1.2.3", "fd00::1", "", "localhost", "10.1.2.3:443"):
        if callers.admits(host):
            yield host
    open_to_all = KnownCallers(paths=HookPaths((TOKEN,)), settings=lambda: DEFAULTS)
    if open_to_all.shown() != ("path",):
        yield "without a list, nobody has to show a secret"


@door
def reviews_that_are_too_large() -> Iterator[str]:
    """B.1: a hook that cannot read a review refuses it; to fail would admit the pod."""
    app = AdmissionApp(_reviewer())
    body = START + b'"object":"' + b"\\u003c" * (LARGEST_BODY // 6) + b'"}}'
    half = len(body) // 2
    pieces: Sequence[Message] = (
        {"type": "http.request", "body": body[:half], "more_body": True},
        {"type": "http.request", "body": body[half:]},
    )
    for hook in ("/mutate/pods", "/validate/pods", "/mutate/pods/ephemeralcontainers"):
        for messages in (({"type": "http.request", "body": body},), pieces):
            status, answer = asyncio.run(_posted(app, hook, messages))
            if status != 200 or b'"allowed":false' not in answer:  # noqa: PLR2004 -- of HTTP
                yield f"{hook}: {status} {answer[:80]!r}"


@door
def places_of_callers_that_left() -> Iterator[str]:
    """C.4: who goes away in the middle of a review gives its place back."""
    leaving: tuple[Sequence[Message], ...] = (
        (GONE,),
        (PIECE, GONE),
        (PIECE, {"type": "http.request", "body": b" " * (LARGEST_BODY + 1)}),
        ({"type": "http.request", "body": b"no review"},),
    )

    async def statuses(messages: Sequence[Message]) -> set[int]:
        app = AdmissionApp(_reviewer(), most=MOST)
        return {(await _posted(app, "/mutate/pods", messages))[0] for _ in range(2 * MOST)}

    for messages in leaving:
        if 429 in asyncio.run(statuses(messages)):  # noqa: PLR2004 -- of HTTP
            yield f"after {len(messages)} messages"


def _reviewer() -> PodHandler:
    return reviewer(ChangingInventory(), ())[0]


async def _posted(app: AdmissionApp, hook: str, messages: Sequence[Message]) -> tuple[int, bytes]:
    """Return the status and the body of the answer to a caller that sends *messages*."""
    left, sent = list(messages), []

    async def receive() -> Message:
        return left.pop(0) if left else GONE

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": hook, "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]
