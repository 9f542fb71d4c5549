"""The options of the console that name a Prometheus."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from console.serve.cli import console

NEEDS = "--prometheus-token and --prometheus-ca need --prometheus URL"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--prometheus-token={file}",),
            NEEDS,
        ),
        (("--prometheus-ca={file}",), NEEDS),
        (("--prometheus=prometheus:9090",), "--prometheus: 'prometheus:9090' is not an address"),
        (
            ("--prometheus=http://a:9090", "--prometheus-token={file}"),
            "--prometheus: a token is sent over https only; accepted: https://HOST",
        ),
    ],
    ids=["token-alone", "ca-alone", "no-address", "token-in-the-clear"],
)
def test_what_cannot_be_asked_is_refused_at_the_start(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """Not by a page, hours later."""
    file = tmp_path / "file"
    file.touch()
    store = f"--store={tmp_path / 'records.db'}"

    done = CliRunner().invoke(console, [store, *(each.format(file=file) for each in arguments)])

    assert done.exit_code == 2
    assert text in " ".join(done.output.split())
    assert not (tmp_path / "records.db").exists()
