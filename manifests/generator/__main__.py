"""Writes the generated manifests beside the written ones: ``python -m manifests.generator``."""

from pathlib import Path

from manifests.generator.documents import FILES, rendered


def main() -> None:
    """Overwrite each generated file."""
    root = Path(__file__).parent.parent
    for path, objects in FILES.items():
        (root / path).write_text(rendered(objects))


if __name__ == "__main__":
    main()
