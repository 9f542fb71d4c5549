"""What tests of the real library begin with: a node of each build, its driver running."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.library_node import LibraryNode
from tests.harness.real_library import SERVED, build_of

NodeMaker = Callable[[int], LibraryNode]


@pytest.fixture(params=SERVED)
def library(request: pytest.FixtureRequest) -> Path:
    """Return a build that the product serves."""
    return build_of(request.param)


@pytest.fixture
def node_of(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeMaker]:
    """Return a function that makes a node with so many GPUs."""
    with ExitStack() as running:

        def made(gpus: int) -> LibraryNode:
            # The way to tmp_path is closed to other users than root.
            folder = tmp_path_factory.mktemp("node")
            node = LibraryNode(folder, library, gpus=gpus)
            running.enter_context(node.driver)
            return node

        yield made


@pytest.fixture
def node(node_of: NodeMaker) -> LibraryNode:
    """Return a node with one GPU of 40 GiB."""
    return node_of(1)
