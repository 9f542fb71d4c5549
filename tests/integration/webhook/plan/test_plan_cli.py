"""The plan command: files in, text or JSON out, and an exit code that scripts can rely on."""

import io
import json
from pathlib import Path

import pytest

from allocator.cli.files import Streams
from tests.integration.webhook.commands import FLEET, PODS, vgpu
from webhook.plan.plan_cli import PlanInput, PlanOutput, answer

FITS = (PODS / "01-three-gigabytes.yaml").read_text()
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"


def asked(
    *files: Path | str, stdin: bytes = b"", settings: str | None = None, fleet: Path = FLEET
) -> tuple[int, str, str]:
    """Ask within this process; return the exit code and both streams."""
    streams = Streams(input=io.BytesIO(stdin), output=io.StringIO(), errors=io.StringIO())
    question = PlanInput(
        files=[str(file) for file in files],
        fleet=str(fleet),
        settings=settings,
        output=PlanOutput.TEXT,
    )
    code = answer(question, streams)
    assert isinstance(streams.output, io.StringIO)
    assert isinstance(streams.errors, io.StringIO)
    return code, streams.output.getvalue(), streams.errors.getvalue()


def test_what_fits_now_exits_with_0() -> None:
    """From standard input; data on standard output, and nothing else anywhere."""
    done = vgpu("plan", "-f", "-", "--fleet", FLEET, stdin=FITS)

    assert (done.returncode, done.stderr) == (0, "")
    assert "FITS NOW" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_has_to_wait_exits_with_4() -> None:
    """The worst of several pods counts."""
    files = (PODS / "01-three-gigabytes.yaml", PODS / "14-not-now.yaml")
    done = vgpu("plan", "-f", files[0], "-f", files[1], "--fleet", FLEET)

    assert (done.returncode, done.stderr) == (4, "")
    assert "FITS NOW" in done.stdout
    assert "NOT NOW" in done.stdout


def test_what_never_fits_exits_with_5() -> None:
    """The document carries the same code, and names the file."""
    file = PODS / "07-too-much.yaml"
    done = vgpu("plan", "-f", file, "--fleet", FLEET, "-o", "json")

    found = json.loads(done.stdout)
    assert (done.returncode, found["exitCode"], done.stderr) == (5, 5, "")
    assert [(pod["file"], pod["verdict"]) for pod in found["pods"]] == [(str(file), "never")]


def test_a_question_that_cannot_be_answered_exits_with_1() -> None:
    """Nothing is printed that could be taken for an answer."""
    done = vgpu("plan", "-f", "not-there.yaml", "--fleet", FLEET)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: not-there.yaml: no such file or directory; accepted: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(b"", "no document found; accepted: a Pod", id="empty"),
        pytest.param(b"---\n---\n", "no document found; accepted: a Pod", id="empty-document"),
        pytest.param(b"a: [", "document 1: while parsing", id="broken"),
        pytest.param(
            SERVICE.encode(), '"Service" of "v1" is not a kind that creates pods', id="unknown-kind"
        ),
        pytest.param(b"a: \xff", "byte 3 is not UTF-8; accepted: YAML or JSON", id="encoding"),
        pytest.param(b"#" * 600_000, "too large; accepted: at most", id="size"),
        pytest.param(b"- x: 1\n" * 30, "document 1: a list found", id="list"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_an_error(text: bytes, said: str) -> None:
    """One bad file among several spoils the answer: half of one would mislead."""
    code, output, errors = asked(PODS / "01-three-gigabytes.yaml", "-", stdin=text)

    assert (code, output) == (1, "")
    assert errors.startswith("error: standard input: ")
    assert said in errors


def test_many_problems_are_cut_short() -> None:
    """A screen of them is enough."""
    items = b"apiVersion: v1\nkind: List\nitems: [" + b"1, " * 30 + b"]"

    _, _, errors = asked("-", stdin=items)

    assert errors.count("\n") == 21
    assert errors.endswith("and 10 more\n")


def test_documents_without_pods_are_passed_over_aloud() -> None:
    """A manifest mostly holds more than pods; what was not planned is told on standard error."""
    code, _, errors = asked("-", stdin=f"{SERVICE}---\n{FITS}".encode())

    assert code == 0
    assert errors == (
        'standard input: document 1: "Service" of "v1" is not a kind that creates pods; skipped\n'
    )


def test_a_fleet_or_settings_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    """They are named, with the place in them."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("nodes: [{name: a, model: T4, gpus: 0}]\n")

    fleet = asked(PODS / "01-three-gigabytes.yaml", fleet=bad)
    settings = asked(PODS / "01-three-gigabytes.yaml", settings=str(bad))

    assert (fleet[0], settings[0]) == (1, 1)
    assert f"error: {bad}: nodes[0].gpus: 0 found; accepted: " in fleet[2]
    assert f"error: {bad}: settings.yaml: " in settings[2]


def test_settings_decide_what_admission_says(tmp_path: Path) -> None:
    """The verdict is about the GPUs; whether the pod is refused is the operator's choice."""
    closed = tmp_path / "settings.yaml"
    closed.write_text("fleet: closed\n")
    file = PODS / "07-too-much.yaml"

    opened, shut = asked(file), asked(file, settings=str(closed))

    assert (opened[0], shut[0]) == (5, 5)
    assert "refused " not in opened[1]
    assert "refused " in shut[1]
