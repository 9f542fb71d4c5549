"""The converting command: a file in, a configuration out, errors by name."""

from pathlib import Path

import yaml
from click.testing import CliRunner

from vgpu import main

GUIDE = Path(__file__).parents[3] / "guides/gpushare-scheduler-policy.json"


def test_a_policy_file_becomes_a_configuration() -> None:
    """YAML on standard output, for --config."""
    result = CliRunner().invoke(main, ["convert", str(GUIDE), "--kubeconfig", "/k"])

    found = yaml.safe_load(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert found["kind"] == "KubeSchedulerConfiguration"
    assert found["clientConnection"] == {"kubeconfig": "/k"}
    assert found["extenders"][0]["bindVerb"] == "bind"


def test_a_file_that_says_more_is_refused() -> None:
    """With the file and the key; nothing is printed that could be used by mistake."""
    text = '{"kind": "Policy", "apiVersion": "v1", "priorities": [], "extenders": [\x1b]}'
    result = CliRunner().invoke(main, ["convert", "-"], input=text)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: standard input: ")
    assert "\x1b" not in result.stderr


def test_a_missing_file_is_named() -> None:
    """As every other command does."""
    result = CliRunner().invoke(main, ["convert", "/nowhere"])

    assert (result.exit_code, result.stdout) == (1, "")
    assert "/nowhere: no such file" in result.stderr
