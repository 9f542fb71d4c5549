"""Decisions, records and usage as a person asks for them."""

import asyncio
import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from console.cli import history
from console.cli.get import ChangePrinter, Printer, RedrawPrinter
from console.cli.history import HistoryQuestion, HistoryReader
from console.cli.session import CommandSession
from console.cli.watch import watch
from console.cluster.cluster_client import ClusterTarget, ConsoleTarget
from console.get.listing import OutputFormat
from console.history.use_rows import container_use_listing
from console.use.figures import ContainerUse, GpuUse, UseAnswer
from tests.builders.history import DECISIONS, LIFE, RECORDS, REFUSED, TRAIN, WAITING
from tests.fakes.port_forward import SECONDS, install
from tests.integration.console.cli.test_watch import until
from tests.integration.console.history.terminal import Terminal, play


def test_each_filter_is_one_of_the_console(tmp_path: Path) -> None:
    """Options become parameters of the same meaning, and nothing else is asked."""

    async def scenario(machine: Terminal) -> None:
        await machine.run(
            "decisions", "--refused", "--by=amy", "--reason=GpuMemoryShort", "--mode=mig",
            "--node=gpu-a01", "--owner=train", "--state=running", "--pod=p", "-n", "team-a",
            "--since=2026-11-21T00:00:00Z", "--until=2026-11-22T00:00:00+02:00", "--limit=7",
        )  # fmt: skip
        await machine.run("records", "--kind=bind", "--kind=released", "--digest=d", "-A")

        first, second = machine.console.asked
        assert first.query == {
            "verdict": "refused",
            "requester": "amy",
            "reason": "GpuMemoryShort",
            "mode": "mig",
            "node": "gpu-a01",
            "owner": "train",
            "state": "running",
            "pod": "p",
            "namespace": "team-a",
            "since": "2026-11-21T00:00:00.000Z",
            "until": "2026-11-21T22:00:00.000Z",
            "limit": "7",
        }
        assert second.query == {"kinds": "bind,released", "digest": "d", "limit": "100"}

    play(tmp_path, scenario)


def test_a_namespace_is_that_of_the_context_unless_all_are_asked_for(tmp_path: Path) -> None:
    """As for kubectl get."""

    async def scenario(machine: Terminal) -> None:
        own, other, every = [
            (await machine.run("decisions", *options, "--no-headers")).stdout.splitlines()
            for options in ((), ("-n", "team-cv"), ("-A",))
        ]

        assert [line.split()[1] for line in own] == ["big-5d8f7b-", "train-7f9c6d-x2x4k"]
        assert [line.split()[1] for line in other] == ["tune-0", "eval-3"]
        assert [line.split()[1] for line in every] == [row.namespace for row in DECISIONS]

    play(tmp_path, scenario)


def test_pages_are_read_until_there_are_enough(tmp_path: Path) -> None:
    """A console gives a thousand rows at most; who asks for more waits for more."""

    async def scenario(machine: Terminal) -> None:
        machine.console.decisions = [replace(TRAIN, digest=f"d{n}") for n in range(25)]
        machine.console.page = 10

        done = await machine.run("decisions", "--limit=22", "-o", "json")
        table = await machine.run("decisions", "--limit=22")

        digests = [item["digest"] for item in json.loads(done.stdout)["items"]]
        assert digests == [f"d{n}" for n in range(22)]
        assert done.stderr == ""
        assert table.stderr == "the latest 22; --limit and --since show more\n"

    play(tmp_path, scenario)


def test_formats_say_the_same(tmp_path: Path) -> None:
    """Each row of a document is a row of the table."""

    async def scenario(machine: Terminal) -> None:
        shown = {
            output: (await machine.run("records", "-A", "-o", output)).stdout
            for output in ("json", "yaml", "csv", "wide")
        }

        document = json.loads(shown["json"])
        assert document["kind"] == "RecordList"
        assert yaml.safe_load(shown["yaml"]) == document
        rows = list(csv.DictReader(io.StringIO(shown["csv"])))
        assert [row["kind"] for row in rows] == [record["kind"] for record in RECORDS]
        assert len(shown["wide"].splitlines()) == 1 + len(RECORDS)

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "about", [TRAIN.digest, f"{TRAIN.digest}/{TRAIN.pod_uid}", "pod/" + TRAIN.pod]
)
def test_a_decision_is_found_by_its_digest_or_its_pod(about: str, tmp_path: Path) -> None:
    """Also that of a pod that is gone."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("decisions", about)
        document = json.loads((await machine.run("decisions", about, "-o", "json")).stdout)

        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{TRAIN.namespace}/{TRAIN.pod} ")
        assert "main started" in done.stdout
        kinds = [each["record"]["kind"] for each in document["life"]]
        assert kinds[-len(LIFE) :] == [record["kind"] for record in LIFE]

    play(tmp_path, scenario)


def test_the_person_behind_a_pod_is_named(tmp_path: Path) -> None:
    """Or it is said that nobody is known."""

    async def scenario(machine: Terminal) -> None:
        known = await machine.run("who", f"pod/{TRAIN.pod}")
        elsewhere = await machine.run("who", f"pod/{WAITING.namespace}/{WAITING.pod}")
        unknown = await machine.run("who", f"pod/{REFUSED.pod}", "-o", "json")
        never = await machine.run("who", "pod/never")

        assert known.stdout == (
            "team-nlp/train-7f9c6d-x2x4k: amy, who created or last changed the template of"
            " replicaset/train-7f9c6d\n"
        )
        assert elsewhere.stdout == "team-cv/tune-0: bo, who created the pod\n"
        assert json.loads(unknown.stdout)["requester"] == ""
        assert never.exit_code == 1
        assert "no decision about pod 'never' in team-nlp is recorded" in never.stderr

    play(tmp_path, scenario)


def test_usage_is_that_of_a_month_unless_a_period_is_given(tmp_path: Path) -> None:
    """And of the namespace of the context unless all are asked for."""

    async def scenario(machine: Terminal) -> None:
        own = await machine.run("who", "--no-headers")
        every = await machine.run("who", "-A", "--no-headers", "--since=1d", "--sort-by=BY")

        assert [line.split()[:2] for line in own.stdout.splitlines()] == [
            ["team-nlp", "amy"],
            ["team-nlp", "<none>"],
        ]
        people = [line.split()[1] for line in every.stdout.splitlines()]
        assert people == ["amy", "bo", "<none>"]
        periods = [set(asked.query) for asked in machine.console.asked]
        assert periods == [{"since", "until"}] * 2

    play(tmp_path, scenario)


def test_a_pod_is_explained_as_it_was_known(tmp_path: Path) -> None:
    """From the console alone: the pod may be gone from the cluster."""

    async def scenario(machine: Terminal) -> None:
        at = "2026-11-21T08:52:30Z"
        done = await machine.run("why", TRAIN.pod, "--at", at)
        named = await machine.run("why", f"pod/team-nlp/{TRAIN.pod}", "--at", at, "-n", "x")
        document = json.loads(
            (await machine.run("why", TRAIN.pod, "--at", at, "-o", "json")).stdout
        )

        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("WAITING   no node has 18000 MiB free on one GPU\n")
        assert named.stdout == done.stdout
        assert (document["kind"], document["at"]) == ("PastWhy", "2026-11-21T08:52:30.000Z")
        first, second, *_ = machine.console.asked
        assert first.query == {
            "namespace": "team-nlp",
            "pod": TRAIN.pod,
            "until": "2026-11-21T08:52:30.001Z",
            "limit": "1000",
        }
        assert second.path == f"/api/v1/decisions/{TRAIN.digest}/{TRAIN.pod_uid}"

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("never", "--at=1h"), "no record of pod 'never' in team-nlp from before "),
        ((TRAIN.pod, "--at=2026-11-21T07:00:00Z"), f"no record of pod '{TRAIN.pod}' in team-nlp"),
        ((TRAIN.pod, "--at=9999-01-01T00:00:00Z"), "has not been yet; accepted: a time that has"),
        (("deploy/web", "--at=1h"), "'deploy/web' is no pod, and --at asks about one pod"),
        (("a/b/c/d", "--at=1h"), '"a/b/c/d" has more than two /; accepted: '),
        (("", "--at=1h"), '"" does not name an object; accepted: '),
        (("\x1b[2J", "--at=1h"), "no record of pod '\\x1b[2J' in team-nlp"),
        (("x' OR 1=1", "--at=1h"), "no record of pod"),
        (("\u202ex", "--at=1h"), "no record of pod '\\u202ex'"),
        (("x" * 600, "--at=1h"), "no record of pod"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_was_not_known_is_an_error(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """It names the pod and the time; nothing is made up."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("why", *arguments)

        assert (done.exit_code, done.stdout) == (1, "")
        assert text in done.stderr
        assert "Traceback" not in done.stderr

    play(tmp_path, scenario)


def test_without_a_console_it_says_so(tmp_path: Path) -> None:
    """The cluster itself forgets; the command to install one is in docs/console.md."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("why", TRAIN.pod, "--at=1h")

        assert (done.exit_code, done.stdout) == (1, "")
        assert "so no console is installed there" in done.stderr

    play(tmp_path, scenario, published=False)


def figures(used: int) -> UseAnswer:
    """Return two containers and two GPUs."""
    containers = tuple(
        ContainerUse(
            namespace=space, pod=f"of-{space}", container="main", promised_mib=8000, used_mib=used
        )
        for space in ("team-nlp", "team-cv")
    )
    gpus = tuple(GpuUse(node=node, device="0", model="T4", memory_mib=16000) for node in "ab")
    return UseAnswer(containers=containers, gpus=gpus)


def test_figures_of_use_are_those_of_a_namespace_or_of_all(tmp_path: Path) -> None:
    """As for every list, and GPUs are those of some nodes or of all."""

    async def scenario(machine: Terminal) -> None:
        machine.console.use = figures(300)

        own, every, some = [
            (await machine.run("top", *options, "--no-headers")).stdout.splitlines()
            for options in (("pods",), ("po", "-A"), ("gpu", "b"))
        ]

        assert [line.split()[0] for line in own] == ["of-team-nlp"]
        assert [line.split()[0] for line in every] == ["team-cv", "team-nlp"]
        assert [line.split()[0] for line in some] == ["b/0"]

    play(tmp_path, scenario)


def test_a_console_without_figures_says_so(tmp_path: Path) -> None:
    """An empty table would read as: nothing is used."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("top", "pods")

        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == "Error from the console (501): no Prometheus is configured\n"

    play(tmp_path, scenario)


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_figures_are_drawn_in_the_place_of_those_before(*, terminal: bool) -> None:
    """On a terminal; a file gets one table after another."""
    output = Screen() if terminal else io.StringIO()
    session = CommandSession(
        target=ClusterTarget(), system="s", output=output, errors=io.StringIO()
    )
    printer = RedrawPrinter(Printer(session, OutputFormat.TABLE, headed=True))
    for used in (100, 200):
        listing = container_use_listing(figures(used).containers, spaces=False)
        assert printer.print(listing, "nothing") == 0

    first, second = output.getvalue().split("POD", 1)[0], output.getvalue().rsplit("POD", 1)[0]
    assert first == ("\x1b[H\x1b[2J" if terminal else "")
    assert second.endswith("\x1b[H\x1b[2J" if terminal else "\n\n")
    assert output.getvalue().count("200Mi") == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("decisions", "--since=yesterday"), '"yesterday" is neither an age nor a time; accepted:'),
        (("decisions", "--mode=smi"), "'smi' is not one of 'mig', 'hami-core', 'mps'"),
        (("decisions", "--limit=0"), "0 is not in the range"),
        (("decisions", "-w", "-o", "json"), "--watch cannot go with -o json; accepted: a table"),
        (("decisions", "d1", "-o", "csv"), '-o csv cannot go with "d1"; accepted: text, -o json'),
        (("decisions", "d1", "-w"), '--watch cannot go with "d1"; accepted: text'),
        (("who", "deploy/web"), '"deploy/web" is not a pod; accepted: pod/NAME'),
        (("who", "pod/"), '"pod/" is not a pod; accepted: pod/NAME'),
        (("top", "gpus", "-w", "-o", "csv"), "--watch cannot go with -o csv; accepted: a table"),
        (("records", "--console-ca=/nowhere"), "'/nowhere' does not exist"),
        (("why", "p", "--at=yesterday"), '"yesterday" is neither an age nor a time; accepted: 30m'),
        (("why", "p", "--at=2026-05-01"), '"2026-05-01" is neither an age nor a time'),
        (("why", "p", "--at="), '"" is neither an age nor a time'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_asked_is_refused_before_anything_is_read(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """The value, its place and what would do; the code is 2."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run(*arguments)

        assert done.exit_code == 2
        assert text in " ".join(done.stderr.split())
        assert machine.console.asked == []

    play(tmp_path, scenario)


def test_a_watched_list_shows_what_is_new_and_survives_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port-forward that ends with its pod is begun again, and the person is told once."""

    async def scenario(machine: Terminal) -> None:
        await machine.run("who")  # leaves a kubeconfig behind
        for name, value in {**install(tmp_path, machine.console.port), SECONDS: "0.5"}.items():
            monkeypatch.setenv(name, value)
        output, errors = io.StringIO(), io.StringIO()
        session = CommandSession(
            target=ClusterTarget(kubeconfig=str(tmp_path / "config")),
            system="vgpu-admission-system",
            output=output,
            errors=errors,
        )
        printer = ChangePrinter(Printer(session, OutputFormat.TABLE, headed=True))
        question = HistoryQuestion(everywhere=True, filters={}, limit=100)

        async def view(reader: HistoryReader) -> int:
            return await history.decisions(reader, printer, question)

        watching = asyncio.create_task(
            history.answer(
                session, ConsoleTarget(), lambda reader: watch(reader, view, interval=0.01)
            )
        )

        def rows() -> list[str]:
            return output.getvalue().splitlines()[1:]

        await until(lambda: len(rows()) == len(DECISIONS))
        await until(lambda: len(machine.calls()) > 2)  # the first is that of `who`
        machine.console.decisions = [replace(REFUSED, times=15), *DECISIONS[1:]]
        await until(lambda: len(rows()) == 1 + len(DECISIONS))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

        assert rows()[-1].split()[2] == REFUSED.pod
        assert "the server does not answer, and will be asked again" in errors.getvalue()

    play(tmp_path, scenario)
