"""The Dockerfile: what is pinned, what is copied, who runs it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILDING = {"compiled.py", "pyproject.toml", "requirements/compile.txt", "requirements/run.txt"}
# Comments dropped and continued lines joined, so that one line is one instruction.
LINES = re.sub(
    r"\s*\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text())
).splitlines()


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_every_base_is_named_by_a_digest_that_the_caller_gives() -> None:
    """No stage starts from a tag alone, and no digest has a default to forget about."""
    bases = [line.split()[0] for line in instructions("FROM")]
    arguments = instructions("ARG")

    for base in bases:
        digest = re.fullmatch(r"\$\{[A-Z_]+\}@\$\{([A-Z_]+_DIGEST)\}", base)
        assert digest is not None, base
        assert digest[1] in arguments


def test_the_library_comes_from_its_published_image() -> None:
    """It is copied, never compiled here."""
    stages = [line.split()[-1] for line in instructions("FROM")]

    assert stages[:3] == ["hami", "compiled", "build"]
    assert "--from=hami /k8s-vgpu/lib/nvidia/ /opt/vgpu/lib/nvidia/" in instructions("COPY")


def test_dependencies_are_installed_by_hash_only() -> None:
    """What is not in the lock file cannot get in."""
    installs = [line for line in instructions("RUN") if " install " in line]

    assert len(installs) == 2
    for install in installs:
        assert "--require-hashes" in install
        assert "--only-binary=:all:" in install


def test_the_image_holds_the_packages_of_the_distribution() -> None:
    """A package that a program needs runs in the image too, and the builder gets to see it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    first = (line.split()[:-1] for line in instructions("COPY"))
    copied = {name for names in first for name in names if not name.startswith(("--", "/"))}
    needed = {*wheel, *BUILDING}
    assert copied == needed
    assert {f"!{name}" for name in needed} <= set(ignored)


def test_it_runs_as_nobody_in_particular() -> None:
    """The user is a number, because `runAsNonRoot` cannot judge a name."""
    assert instructions("USER") == ["65532:65532"]
    assert LINES.index("USER 65532:65532") > max(
        i for i, line in enumerate(LINES) if line.startswith("FROM ")
    )
