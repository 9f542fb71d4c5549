"""The command lists vocabularies for people and for scripts."""

import json
from pathlib import Path

import yaml

from tests.integration.webhook.commands import vgpu


def test_scripts_read_names_and_modes() -> None:
    """JSON and YAML are the same document, and nothing else is printed."""
    done, other = (vgpu("vocabularies", "-o", output) for output in ("json", "yaml"))

    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(other.stdout) == found
    names = {one["name"] for one in found["vocabularies"]}
    modes = {mode for one in found["vocabularies"] for mode in one["modes"]}
    assert {"volcano", "gpushare", "hami"} <= names
    assert {"mig", "hami-core", "memory-only"} <= modes


def test_people_read_lines_of_80_columns() -> None:
    """Without escapes, because it is no terminal."""
    done = vgpu("vocabularies")

    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "nvidia.com/gpumem " in done.stdout
    assert "\x1b" not in done.stdout


def test_the_settings_of_a_cluster_count(tmp_path: Path) -> None:
    """Names, units, and which are served."""
    file = tmp_path / "settings.yaml"
    file.write_text(
        "vocabularies: [volcano, hami]\n"
        "hami: {memoryFactor: 1024, resourceMemoryName: example.com/mem}\n"
    )
    done = vgpu("vocabularies", "--settings", file, "-o", "json")

    found = {one["name"]: one for one in json.loads(done.stdout)["vocabularies"]}
    assert [name for name, one in found.items() if one["served"]] == ["volcano", "hami"]
    assert {"name": "example.com/mem", "unit": "GiB on each GPU"} in found["hami"]["resources"]


def test_settings_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    """With the place and what would be accepted."""
    file = tmp_path / "settings.yaml"
    file.write_text("vocabularies: [volcano, kai]\n")
    done = vgpu("vocabularies", "--settings", file)

    assert done.returncode == 1
    assert 'vocabularies[1] "kai" is not known; accepted: volcano' in done.stderr
