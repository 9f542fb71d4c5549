"""What a session prints steers no terminal, whoever wrote it."""

import io

import pytest

from allocator.model.untrusted import is_plain
from console.cli.session import CommandSession, QuestionError, error_message
from console.cluster.cluster_client import ClusterTarget
from tests.builders.hostile_text import HOSTILE_TEXTS


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_data_warnings_and_errors_are_plain(text: str) -> None:
    """An error of the API server quotes what a stranger wrote, and so does a warning."""
    output, errors = io.StringIO(), io.StringIO()
    session = CommandSession(target=ClusterTarget(), system="s", output=output, errors=errors)

    session.print([text, f"{text}\n{text}"])
    session.warn(text)
    session.note(error_message(QuestionError(f'pods "{text}" not found')))

    for stream in (output, errors):
        assert all(map(is_plain, stream.getvalue().split("\n")))
    assert errors.getvalue().startswith("Warning: ")
