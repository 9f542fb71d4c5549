"""The page of pods: pages of a list that follow each other, and filters."""

from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from console.access.viewer import Viewer
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView
from console.get.pod_rows import pod_rows
from console.pages.fleet.pods import pods_page
from console.pages.parts.blocks import PageQuestion, PageTable
from console.records.query import EVERYTHING, BadCursorError, Scope
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, gpu, node, soft_grant
from tests.harness.console_site import typical_pods
from tests.unit.console.sites import NOW, machine, plain, site

TEAM_B = Scope(namespaces=frozenset({"team-b"}), cluster=True)


def table(
    values: dict[str, str], view: ClusterView, pods: Sequence[PodView], *, scope: Scope = EVERYTHING
) -> PageTable:
    viewer = Viewer(user="u", scope=scope)
    question = PageQuestion(path="/pods", values=values, viewer=viewer, now=NOW)
    [found] = pods_page(question, view, pods).tables
    return found


def names(found: PageTable) -> list[object]:
    return [row[0].exact for row in found.rows]


def large() -> ClusterView:
    """Return 60 nodes with five pods each, of which none exists any more."""
    made = [node(f"n{n:02}", gpu(T4)) for n in range(60)]
    documents = [
        gpu_node(
            one, [entry(f"{one.name}-{k}", soft_grant(100, gpu=one.gpus[0].uuid)) for k in "edcba"]
        )
        for one in made
    ]
    return site(documents, [machine(one.name) for one in made])


def in_namespace(pod: PodView, namespace: str) -> PodView:
    metadata = msgspec.structs.replace(pod.metadata, namespace=namespace)
    return msgspec.structs.replace(pod, metadata=metadata)


def pages(view: ClusterView, pods: Sequence[PodView]) -> Iterator[PageTable]:
    address = "/pods"
    for _ in range(10):
        found = table(dict(parse_qsl(urlsplit(address).query)), view, pods)
        yield found
        address = found.more
        if not address:
            return


def test_pages_have_each_pod_once_and_in_order() -> None:
    """As many as there are, whatever their number."""
    others = [in_namespace(plain(f"q{n:03}"), "team-a-b") for n in range(50)]
    view, pods = large(), [*(plain(f"p{n:03}") for n in range(50)), *others]
    found = [name for page in pages(view, pods) for name in names(page)]
    rows = pod_rows(view, pods, gone=True, namespace=None)
    expected = sorted((row.namespace, row.name) for row in rows)

    assert found == [f"{namespace}/{name}" for namespace, name in expected]
    assert len(found) == 400


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"state": "waiting"}, ["team-a/tune-9"]),
        ({"node": "gpu-a"}, ["team-a/train-0", "team-a/tune-0"]),
        ({"pod": "eval-4"}, ["team-a/eval-4"]),
        ({"ns": "team-b"}, []),
        ({"state": "Gone"}, ["team-a/eval-3", "team-a/gone-1"]),
        ({"state": "no-such"}, []),
    ],
)
def test_filters_are_exact(values: dict[str, str], expected: list[str]) -> None:
    assert names(table(values, site(), typical_pods())) == expected


def test_an_entry_of_another_namespace_is_not_listed() -> None:
    """Not even where its pod is gone."""
    assert table({}, site(), [], scope=TEAM_B).rows == ()


def test_a_cursor_of_nobodys_is_refused() -> None:
    with pytest.raises(BadCursorError):
        table({"after": "a/b"}, site(), [])
