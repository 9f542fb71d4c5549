"""The committed manifests are the ones the generator writes."""

from pathlib import Path

import pytest
import yaml

from manifests.generator.documents import FILES, render

MANIFESTS = Path(__file__).parents[3] / "manifests"


@pytest.mark.parametrize("path", FILES)
def test_committed_files_are_up_to_date(path: str) -> None:
    """`python -m manifests.generator` would change nothing."""
    committed = (MANIFESTS / path).read_text()

    assert committed == render(FILES[path])


@pytest.mark.parametrize("path", FILES)
def test_what_is_written_reads_back(path: str) -> None:
    """YAML keeps every expression to the letter, and needs no alias for it."""
    text = render(FILES[path])

    assert tuple(yaml.safe_load_all(text)) == FILES[path]
    assert " &id" not in text
