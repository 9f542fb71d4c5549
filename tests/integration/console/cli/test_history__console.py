"""The plugin and the real console: its routes, its store and its rights, over TLS."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from allocator.audit.record import parse_record
from console.cli.kubectl_vgpu import NAME, cli
from console.records.rows import StoredRecord
from console.store.opening import open_store
from tests.builders.history import GIVEN, LIFE, REFUSAL, SETTINGS, TRAIN
from tests.builders.sent_records import admission
from tests.integration.console.ports import CLUSTER, OURS, Site, pages_port
from tests.integration.console.serve.test_api_routes import figures

OTHER = "b"  # one of those that the console knows
READ_ALL = [("get", kind, "*") for kind in ("pods", "nodes", "events")]
Run = Callable[..., Awaitable[Result]]


def lines() -> list[dict[str, object]]:
    """Return the life of one pod, a refusal, settings, and a pod of another namespace."""
    numbered = [*LIFE, REFUSAL, SETTINGS]
    ours = [{**line, "id": f"{number:032x}"} for number, line in enumerate(numbered, 1)]
    asker = {"user": "amy", "groups": ["system:authenticated"]}
    first = {**ours[0], **asker}
    return [
        first,
        *ours[1:],
        admission(namespace=OTHER, pod="other", digest="other", user="bo"),
    ]


def play(folder: Path, scenario: Callable[[Site, Run], Awaitable[None]]) -> None:
    """Run *scenario* with a console and the plugin."""

    async def run() -> None:
        with contextlib.closing(open_store(str(folder / "records.db"))) as store:
            store.append(
                [
                    StoredRecord(record=parse_record(json.dumps(line)), sender="webhook")
                    for line in lines()
                ]
            )
            async with pages_port(store, query=figures) as site:
                await scenario(site, plugin(folder, site))

    asyncio.run(run())


def plugin(folder: Path, site: Site) -> Run:
    authorities = folder / "ca.crt"
    authorities.write_bytes(OURS.certificate)
    config = folder / "config"

    async def run(*arguments: str, user: Mapping[str, object] | None = None) -> Result:
        document = {
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": user or {"token": "reader"}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-nlp"}}
            ],
        }
        config.write_text(json.dumps(document))
        there = (f"--console={site.url}", f"--console-ca={authorities}", f"--kubeconfig={config}")
        return await asyncio.to_thread(
            CliRunner().invoke, cli, [*arguments, *there], prog_name=NAME
        )

    return run


def test_what_was_recorded_is_listed_explained_and_summed_up(tmp_path: Path) -> None:
    """Each command understands what the console answers."""

    async def scenario(site: Site, run: Run) -> None:
        site.reviews.add_user("reader", "auditor", *READ_ALL)

        decisions = json.loads((await run("decisions", "-A", "-o", "json")).stdout)["items"]
        one = await run("decisions", f"pod/{TRAIN.pod}")
        records = json.loads((await run("records", "-A", "-o", "json")).stdout)["items"]
        kinds = await run("records", "--kind=bind", "--kind=started", "--no-headers")
        who = json.loads((await run("who", "-A", "-o", "json", "--since=52w")).stdout)["items"]
        top = await run("top", "gpus", "--no-headers")

        names = {(item["namespace"], item["pod"]) for item in decisions}
        assert (TRAIN.namespace, TRAIN.pod) in names
        assert (OTHER, "other") in names
        assert (one.exit_code, one.stderr) == (0, "")
        assert all(str(line["kind"]) in one.stdout for line in LIFE)
        assert GIVEN[0]["devices"][0]["profile"] in one.stdout  # type: ignore[index]  # of JSON
        assert len(records) == len(lines())
        assert {line.split()[1] for line in kinds.stdout.splitlines()} == {"bind", "started"}
        assert {item["namespace"] for item in who} >= {TRAIN.namespace}
        assert top.stdout.split()[0] == "node-1/0"

    play(tmp_path, scenario)


def test_nobody_reads_by_the_plugin_what_they_may_not_read(tmp_path: Path) -> None:
    """Neither of another namespace, nor of nodes; and a stranger reads nothing."""

    async def scenario(site: Site, run: Run) -> None:
        site.reviews.add_user("reader", "bo", ("get", "pods", OTHER))

        every = await run("decisions", "-A", "--no-headers")
        theirs = await run("decisions", TRAIN.digest)
        nodes = await run("records", "-A", "--kind=settings")
        gpus = await run("top", "gpus")
        stranger = await run("decisions", user={"token": "nobody"})

        assert [line.split()[1] for line in every.stdout.splitlines()] == [OTHER]
        assert theirs.exit_code == 1
        assert "Error from the console (404): no such decision" in theirs.stderr
        assert (nodes.stdout, nodes.stderr) == ("", "No records found.\n")
        assert gpus.stderr == "No figures found, or none that you may see.\n"
        assert "Error from the console (401)" in stranger.stderr

    play(tmp_path, scenario)


def test_a_client_certificate_of_the_cluster_says_who_asks(tmp_path: Path) -> None:
    """As it does to the API server."""

    async def scenario(site: Site, run: Run) -> None:
        site.reviews.add_user("unused", "carol", *READ_ALL)
        issued = CLUSTER.issue("carol")
        pair = {
            "client-certificate-data": base64.b64encode(issued.certificate).decode(),
            "client-key-data": base64.b64encode(issued.key).decode(),
        }

        done = await run("decisions", "-A", "--no-headers", user=pair)

        assert (done.exit_code, done.stderr) == (0, "")
        assert TRAIN.pod in done.stdout

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("records", "--kind=bound"), 'kinds="bound"; accepted: admission, '),
        (("decisions", "--pod", "x" * 600), "accepted: 512 at most"),
    ],
    ids=["kind", "length"],
)
def test_what_the_console_does_not_accept_is_quoted(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """Only it knows all kinds of a later version, and its bounds."""

    async def scenario(site: Site, run: Run) -> None:
        site.reviews.add_user("reader", "auditor", *READ_ALL)

        done = await run(*arguments)

        assert done.exit_code == 1
        assert "Error from the console (400): " in done.stderr
        assert text in done.stderr

    play(tmp_path, scenario)
