"""Folders of manifests, and YAML out."""

import io
import json
from pathlib import Path

import pytest
import yaml

from allocator.cli.files import MOST_FILES, Streams
from tests.integration.webhook.commands import FLEET, PODS, vgpu
from webhook.plan.plan_cli import PlanInput, PlanOutput, answer

FITS = (PODS / "01-three-gigabytes.yaml").read_text()
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"


def asked(*files: Path) -> tuple[int, list[str], str]:
    """Return the exit code, the files of the answer, and what standard error says."""
    streams = Streams(input=io.BytesIO(), output=io.StringIO(), errors=io.StringIO())
    question = PlanInput(
        files=[str(file) for file in files], fleet=str(FLEET), output=PlanOutput.JSON
    )
    code = answer(question, streams)
    assert isinstance(streams.output, io.StringIO)
    assert isinstance(streams.errors, io.StringIO)
    text = streams.output.getvalue()
    found = [Path(pod["file"]).name for pod in json.loads(text)["pods"]] if text else []
    return code, found, streams.errors.getvalue()


def test_a_folder_stands_for_its_manifests(tmp_path: Path) -> None:
    """In the order of their names; other files and inner folders are none of them."""
    for name in ("b.yml", "a.yaml", "c.json", "inner/d.yaml", "README.md", "B.yaml.bak"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(FITS)
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "s.yaml").write_text(SERVICE)

    code, files, errors = asked(tmp_path)

    assert (code, files) == (0, ["a.yaml", "b.yml", "c.json"])
    assert errors.endswith('"Service" of "v1" is not a kind that creates pods; skipped\n')


@pytest.mark.parametrize(
    ("names", "said"),
    [
        pytest.param([], "0 files with a name that ends in .json, .yaml, .yml", id="empty"),
        pytest.param(["s.yaml"], "no pod found; accepted: a Pod, Deployment", id="no-pod"),
        pytest.param(["s.yaml", "x.yaml"], "x.yaml: document 1: while parsing", id="broken"),
        pytest.param([f"{i}.yaml" for i in range(MOST_FILES + 1)], "1001 files", id="many"),
    ],
)
def test_a_folder_without_pods_is_an_error(tmp_path: Path, names: list[str], said: str) -> None:
    """As for a file: nothing is planned, and it is said why."""
    for name in names:
        (tmp_path / name).write_text("a: [" if name == "x.yaml" else SERVICE)

    code, files, errors = asked(tmp_path)

    assert (code, files) == (1, [])
    assert said in errors


def test_the_same_file_twice_is_two_answers() -> None:
    """Each object has the fleet to itself, also where it is given twice."""
    file = PODS / "01-three-gigabytes.yaml"

    assert asked(file, file)[:2] == (0, [file.name, file.name])


def test_yaml_is_the_same_document() -> None:
    """Scripts may read either."""
    command = ("plan", "-f", PODS / "07-too-much.yaml", "--fleet", FLEET, "-o")

    found = yaml.safe_load(vgpu(*command, "yaml").stdout)

    assert found == json.loads(vgpu(*command, "json").stdout)
    assert found["exitCode"] == 5
