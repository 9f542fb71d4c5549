"""Burial: removes directories that a tenant filled, whatever is in them and however deep.

A directory is moved out of its place at once and emptied bit by bit. If the process dies meanwhile,
its successor finds the moved directory by its name and continues.
"""

import itertools
import os
import secrets
from contextlib import suppress
from typing import Final

import structlog

from agent.shell.regionfiles import directory, file_names

MOST: Final = 10_000  # names removed at a time; a tenant may leave any number
_BURIED: Final = ".buried-"

log = structlog.get_logger(__name__)


def quarantine(name: str, *, at: int, top: int) -> None:
    """Take a directory of *at* out of its place into *top*, to be emptied; a file is removed."""
    with suppress(FileNotFoundError):
        try:
            os.rename(name, f"{_BURIED}{secrets.token_hex(8)}/", src_dir_fd=at, dst_dir_fd=top)
        except NotADirectoryError:
            os.unlink(name, dir_fd=at)


def purge_quarantine(top: int) -> None:
    """Empty what is buried in *top*, level by level: a tree may be deeper than any stack."""
    budget = itertools.count()
    stuck: set[str] = set()
    while graves := [n for n in file_names(top) if n.startswith(_BURIED) and n not in stuck]:
        for grave in graves:
            try:
                with directory(grave, at=top) as here:
                    for name in file_names(here, most=MOST):
                        if next(budget) >= MOST:
                            return
                        quarantine(name, at=here, top=top)
                os.rmdir(grave, dir_fd=top)
            except OSError as error:
                stuck.add(grave)
                log.warning("directory not removed", name=grave, why=str(error))
