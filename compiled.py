"""The hot path of admission as machine code: ``python -m compiled`` compiles the tree it runs in.

Every module here is ordinary Python and runs as it is. mypyc makes of some of them extension
modules that stand beside their sources and are imported instead: that is how the image runs them,
and how the benchmark measures them. A checkout stays as it is; ``--apart`` compiles a copy of it in
the cache and prints where.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

# The modules that run for every review and every question of a scheduler. mypyc drops class
# keywords, on which msgspec depends. So a module named here may define no msgspec class other than
# subclasses of Value with `frozen=True` (allocator/model/value.py); all others are elsewhere.
_HOT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "allocator/audit": ("line_buffer", "record_source"),
        "allocator/delivery": ("batch_queue", "batch_text"),
        "allocator/extender": (
            "equivalence_filter",
            "filter",
            "index",
            "prioritize",
            "projection",
            "reasons",
            "score",
        ),
        "allocator/ledger": (
            "assign",
            "decode",
            "decode_parts",
        ),
        "allocator/mig": (
            "geometry",
            "profiles",
            "slot_policy",
        ),
        "allocator/model": (
            "untrusted",
            "usage",
        ),
        "allocator/placement": (
            "candidates",
            "choose",
            "fit",
            "hami_core",
            "mig",
            "mode",
            "packing",
            "search",
        ),
        "allocator/replay": (
            "decision_fields",
            "request_fields",
            "snapshot_records",
        ),
        "allocator/request": (
            "amounts",
            "containers",
            "fast_path",
            "parse",
            "pod_annotations",
            "quantity",
            "resource_names",
        ),
        "webhook/admission": (
            "audit_record",
            "choice",
            "containers",
            "decide",
            "injection",
            "messages",
            "reinvocation",
            "rewrite",
            "tenant_checks",
        ),
        "webhook/binding": (
            "batch",
            "binding_annotations",
            "decide",
        ),
        "webhook/records": ("pass_records",),
        "webhook/replicas": (
            "decided_pod",
            "kept_parts",
            "recent_choices",
            "recent_decisions",
            "replica_records",
            "surroundings",
        ),
        "webhook/review": ("json_patch",),
    }
)
HOT: Final = tuple(f"{folder}/{name}.py" for folder, names in _HOT.items() for name in names)
PACKAGES: Final = ("allocator", "benchmarks", "certs", "kube", "webhook")
KEPT: Final = 3  # compiled copies in the cache; each takes some ten MB
ROOT: Final = Path(__file__).parent


def main(arguments: Sequence[str]) -> int:
    """Compile here, or apart; print where."""
    command = argparse.ArgumentParser(prog="compiled", description=__doc__)
    command.add_argument(
        "--apart",
        action="store_true",
        help="compile a copy in the cache directory instead of this tree",
    )
    if command.parse_args(arguments).apart:
        print(apart())  # noqa: T201 -- what the caller wants to know
    else:
        _extended()
    return 0


def apart() -> Path:
    """Return a compiled copy of this tree, made where there is none of these very sources.

    Raises ``subprocess.CalledProcessError`` where the compiler fails.
    """
    sources = sorted(_sources())
    digest = hashlib.sha256(sysconfig.get_config_var("EXT_SUFFIX").encode())
    for source in sources:
        digest.update(f"{source}\0".encode() + (ROOT / source).read_bytes())
    cache = _cache()
    done = cache / digest.hexdigest()[:20]
    if not done.exists():
        print(f"compiling the hot path into {done}", file=sys.stderr)  # noqa: T201 -- takes a minute
        scratch = cache / f"{done.name}.{os.getpid()}"
        for source in sources:
            (scratch / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / source, scratch / source)
        subprocess.run(
            [sys.executable, "-m", "compiled"], cwd=scratch, check=True, stdout=sys.stderr
        )
        _moved(scratch, done)
    done.touch()
    for stale in sorted(cache.iterdir(), key=lambda at: -at.stat().st_mtime)[KEPT:]:
        shutil.rmtree(stale, ignore_errors=True)
    return done


def _moved(scratch: Path, done: Path) -> None:
    """Give *scratch* its name, or drop it where somebody else was first."""
    try:
        scratch.rename(done)
    except OSError:
        shutil.rmtree(scratch)
        if not done.exists():
            raise


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    base = os.environ.get("VGPU_CACHE") or Path(home).expanduser() / "vgpu-admission"
    return Path(base) / "compiled"


def _sources() -> Iterator[Path]:
    """Yield the files that programs and benchmarks are made of, relative to the checkout."""
    yield from (Path(name) for name in ("compiled.py", "pyproject.toml", "vgpu.py"))
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and file.suffix not in {".pyc", ".so"}:
                yield file.relative_to(ROOT)


def _extended() -> None:
    """Compile the hot modules of the tree in the working directory, beside their sources."""
    # Only whoever compiles needs the compiler.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    options = ["--strict", "--no-warn-unused-ignores", "--config-file="]
    # Optimized for less code than with level 3: of each review, most of it has left the
    # processor's caches since the last one.
    extensions = mypycify([*options, *HOT], opt_level="2")
    for extension in extensions:
        # Nobody replaces our functions, so they call one another directly.
        extension.extra_compile_args.append("-fvisibility=hidden")
    distribution = Distribution({"name": "vgpu-admission", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    distribution.run_command("build_ext")
    shutil.rmtree("build", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
