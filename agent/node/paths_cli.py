"""Options that say where a node's folders are; its agent, relay and doctor share them."""

from pathlib import Path
from typing import Final

import click

from allocator.catalog.injection import HOST_ROOT
from allocator.catalog.reserved_paths import host_root_problem

KUBELET: Final = Path("/var/lib/kubelet")

root = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/"),
    show_default=True,
    help="root of the node's file system",
)
kubelet = click.option(
    "--kubelet-dir",
    "kubelet",
    type=click.Path(path_type=Path, file_okay=False),
    default=KUBELET,
    show_default=True,
    help="kubelet's directory on the node",
)


def _own_folder(_context: click.Context, _parameter: click.Parameter, path: Path) -> Path:
    if problem := host_root_problem(str(path)):
        raise click.BadParameter(f"{path}: {problem}")
    return path


host_root = click.option(
    "--host-root",
    envvar="VGPU_HOST_ROOT",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(HOST_ROOT),
    show_default=True,
    callback=_own_folder,
    help="directory of the node that containers have mounted; the setting hostRoot names the same",
)


def below(root: Path, path: Path) -> Path:
    """Return where *path* of the node is, whose ``/`` is *root*."""
    return root / path.relative_to(path.anchor)
