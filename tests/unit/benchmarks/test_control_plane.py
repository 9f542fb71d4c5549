"""A benchmark that cannot have a control plane says why, and does not end in a traceback."""

from pathlib import Path

import pytest

from benchmarks.control_plane import control_plane


def test_without_a_program_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names what was wrong with the program."""
    monkeypatch.setenv("TEST_ASSET_ETCD", str(tmp_path / "absent"))

    assert control_plane() is None
    assert "no control plane: TEST_ASSET_ETCD names" in capsys.readouterr().err
