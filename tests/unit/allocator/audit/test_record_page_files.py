"""The page on records and its JSON Schema: what is written down is what programs write."""

from pathlib import Path
from typing import get_args

import pytest

from allocator.audit.record import AnyRecord
from allocator.audit.record_page_files import (
    NAME,
    json_schema,
    main,
    page_with_tables,
    record_tables,
    schema_text,
)

PAGE, SCHEMA_FILE = f"{NAME}.md", f"{NAME}.schema.json"
TABLES = record_tables()
DOCS = Path(__file__).parents[4] / "docs"
HOW = "run python -m allocator.audit.record_page_files docs"


def test_the_page_has_the_fields_of_today() -> None:
    """Each field of each kind stands in its table."""
    page = (DOCS / PAGE).read_text()

    assert page_with_tables(page) == page, HOW


def test_the_json_schema_is_the_one_of_today() -> None:
    """Whoever checks records by it accepts what programs write now."""
    assert (DOCS / SCHEMA_FILE).read_text() == schema_text(), HOW


def test_the_schema_has_each_kind() -> None:
    """A reader tells them apart by their kind."""
    kinds = {kind.__struct_config__.tag for kind in get_args(AnyRecord)}

    assert set(json_schema()["discriminator"]["mapping"]) == kinds


def test_both_are_written_again(tmp_path: Path) -> None:
    """By one command, also where a table was changed by hand."""
    (tmp_path / PAGE).write_text((DOCS / PAGE).read_text().replace("`costs_per_mille`", "`costs`"))

    assert main([str(tmp_path)]) == 0

    for name in (PAGE, SCHEMA_FILE):
        assert (tmp_path / name).read_text() == (DOCS / name).read_text()


def test_a_page_without_a_place_for_them_is_refused() -> None:
    """Nothing is written anywhere else."""
    with pytest.raises(ValueError, match="the page has no"):
        page_with_tables("# Audit records\n")


@pytest.mark.parametrize(
    "row",
    [
        "| `id` | text | yes |",
        "| `memory_mib` | integer |  |",
        "| `containers` | list of [AskedPart](#askedpart) |",
        "| `costs_per_mille` | integer by name |",
        "| `outcome` | `promised`, `refused`, `elsewhere` | yes |",
        "| `positions` | list of [text, text] |  | GPU and MIG position that the scheduler named |",
        "position of the GPU, MiB, cores, start, number of the profile; the last two are -1",
    ],
)
def test_a_field_is_described(row: str) -> None:
    """By its type, whether it is always there, and what its comment says."""
    assert row in TABLES


def test_a_kind_repeats_nothing_of_its_parent() -> None:
    """What all records have stands in one table."""
    assert TABLES.count("| `pod_uid` |") == 1
    assert "It has all fields of `bind`, and:" in TABLES
