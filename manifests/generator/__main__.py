"""Write the generated manifests, or with --check only compare them."""

import argparse
from pathlib import Path

from manifests.dashboards.files import DASHBOARDS
from manifests.dashboards.panels import dashboard_text
from manifests.generator.documents import FILES, render


def main() -> None:
    """Overwrite each generated file, or with ``--check`` only say which would change."""
    parser = argparse.ArgumentParser(prog="manifests.generator", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is out of date"
    )
    root = Path(__file__).parent.parent
    if parser.parse_args().check:
        if stale := _stale_paths(root):
            parser.exit(1, f"out of date: {', '.join(stale)}; run python -m manifests.generator\n")
        return
    for path, text in _texts().items():
        (root / path).write_text(text)


def _texts() -> dict[str, str]:
    """Return what is generated, by path."""
    manifests = {path: render(objects) for path, objects in FILES.items()}
    return manifests | {path: dashboard_text(each) for path, each in DASHBOARDS.items()}


def _stale_paths(root: Path) -> list[str]:
    return [
        path
        for path, text in _texts().items()
        if not (root / path).exists() or (root / path).read_text() != text
    ]


if __name__ == "__main__":
    main()
