"""The console of the webhook benchmark: acknowledges each batch of records, and keeps none.

It is a process on the core of the load, as a real one is on another machine.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import orjson
import uvloop

from allocator.cli.http_server import Listen, Receive, Scope, Send
from benchmarks.webhook_server import HOST, body_of, reply_json, tell
from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from certs.tls_server import ServingPair
from webhook.serve.http import Reviews, serve_app


def record_count(batch: bytes) -> int:
    """Return how many records *batch* has; a line that begins with "=" or "+" is none."""
    lines, others = batch.count(b"\n"), batch.count(b"\n=") + batch.count(b"\n+")
    return lines - others - batch.startswith(b"=")


async def acknowledge(_scope: Scope, receive: Receive, send: Send) -> None:
    """Say that all records of a batch are stored."""
    stored = record_count(await body_of(receive))
    await reply_json(send, orjson.dumps({"stored": stored, "known": 0, "rejected": []}))


async def run(files: Path) -> None:
    """Write what senders need into *files*, and serve until standard input ends."""
    names = Names(dns=("localhost",), addresses=(ip_address(HOST),))
    bundle, pair = throwaway(IssueParameters(names=names))
    contents = {"ca.crt": bundle, "tls.crt": pair.certificate, "tls.key": pair.key}
    for name, content in {**contents, "token": b"token"}.items():
        (files / name).write_bytes(content)
    live = ServingPair()
    live.load(pair)
    listen = Listen(host=HOST, port=0)
    async with serve_app(
        acknowledge, listen, context=live.context, at_once=Reviews.at_once
    ) as port:
        tell({"port": port})
        await asyncio.to_thread(sys.stdin.buffer.read)


def main(arguments: Sequence[str]) -> int:
    """Run ``FOLDER CORE``."""
    folder, core = arguments
    os.sched_setaffinity(0, {int(core)})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
