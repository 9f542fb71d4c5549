"""What kubectl's shell scripts get to offer for `kubectl vgpu`."""

import pytest

from console.cli.completion import FILES, NO_FILES, completions

COMMANDS = {"get", "layout", "why", "fit", "decisions", "records", "who", "top", "export"}


def words(*typed: str) -> list[str]:
    found, directive = completions(typed)
    assert directive == NO_FILES
    return [line.partition("\t")[0] for line in found]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        pytest.param([""], COMMANDS, id="commands"),
        pytest.param([], COMMANDS, id="nothing-typed"),
        pytest.param(["w"], {"who", "why"}, id="a-letter"),
        pytest.param(["get", ""], {"nodes", "gpus", "pods"}, id="kinds"),
        pytest.param(["-n", "team-a", "g"], {"get"}, id="behind-options"),
        pytest.param(["-A", "--context=c", "get", "p"], {"pods"}, id="kind-behind-options"),
        pytest.param(["get", "pods", "--no-h"], {"--no-headers"}, id="options"),
        pytest.param(["-n", "team-a", "why", "p1", "--as-g"], {"--as-group"}, id="both"),
        pytest.param(["-n", ""], set(), id="value-of-an-option"),
        pytest.param(["get", "pods", "-n", ""], set(), id="value-behind-the-command"),
        pytest.param(["why", ""], set(), id="names-of-pods"),
        pytest.param(["x" * 100_000], set(), id="long"),
        pytest.param(["\x1b[31m\n"], set(), id="control-characters"),
    ],
)
def test_commands_and_options_are_completed(typed: list[str], expected: set[str]) -> None:
    """Names of objects are not, which would take a call to the cluster at each key."""
    assert set(words(*typed)) == expected


def test_formats_are_completed() -> None:
    assert {"json", "yaml", "wide"} <= set(words("get", "pods", "-o", ""))


@pytest.mark.parametrize("typed", [["fit", "-f", "p"], ["--kubeconfig", ""]])
def test_a_file_is_completed_by_the_shell(typed: list[str]) -> None:
    assert completions(typed) == ([], FILES)
