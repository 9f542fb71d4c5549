"""Lists: what stands in each column, and which pods and nodes are rows."""

import csv
import io
import json
from collections.abc import Callable

import pytest
import yaml

from allocator.ledger.schema import spec_of
from console.cluster.pod import PodState, PodView, pod_of
from console.cluster.snapshot import cluster_view
from console.get.gpu_rows import gpu_listing, gpu_rows
from console.get.listing import Listing, OutputFormat, in_order, listing_lines
from console.get.node_rows import node_listing, node_rows
from console.get.pod_rows import PodRow, pod_listing, pod_rows
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import soft_grant
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, PERCENT, container, pod
from tests.unit.console.sites import NOW, hard, held_hard, machine, site, soft, stored

Golden = Callable[[str, str], str]


def pods() -> list[PodView]:
    """Return one pod of each kind that a list shows, and two that it does not."""
    slice_of = pod(container(limits={NUMBER: 1, MEMORY: 18000, CORES: 40}))
    soft_of = pod(
        container(limits={NUMBER: 1, MEMORY: 8000, CORES: 60}), annotations={MODE: "hami-core"}
    )
    half = pod(container("a", limits={NUMBER: 2, PERCENT: 50}), container("b"))
    nothing = pod(container())
    return [
        stored("train-0", slice_of, node="gpu-a", phase="Running", minutes=40),
        stored("tune-0", pod(container("worker", limits={NUMBER: 1, MEMORY: 3000}))),
        stored("eval-3", soft_of, node="gpu-b", phase="Running", minutes=340),
        stored("eval-4", soft_of, node="gpu-b", phase="Succeeded", minutes=340),
        stored("half-0", half),
        stored("late-0", soft_of, node="gpu-b", minutes=1),
        stored("past-0", soft_of, node="gpu-b", phase="Failed"),
        stored("web-0", nothing),
    ]


def table(listing: Listing, output: OutputFormat = OutputFormat.TABLE, **how: bool) -> str:
    return "".join(f"{line}\n" for line in listing_lines(listing, output, **how))


def rows() -> list[PodRow]:
    return pod_rows(site(), pods(), gone=True, namespace=None)


LISTS = {
    "nodes": lambda: node_listing(site()),
    "gpus": lambda: gpu_listing(site()),
    "pods": lambda: pod_listing(rows(), NOW, spaces=False),
}
WIDE = LISTS | {"pods": lambda: pod_listing(rows(), NOW, spaces=True)}


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_shown_as_reviewed(name: str, golden: Golden) -> None:
    """The tables stand in tests/golden; --update-golden writes them anew."""
    shown, wide = table(LISTS[name]()), table(WIDE[name](), OutputFormat.WIDE)

    assert shown == golden(f"kubectl-get-{name}.txt", shown)
    assert wide == golden(f"kubectl-get-{name}-wide.txt", wide)


@pytest.mark.parametrize("name", ["nodes", "gpus", "pods"])
def test_documents_are_what_docs_promise(name: str, golden: Golden) -> None:
    """Keys are public: they are only ever added; YAML says the same as JSON."""
    (shown,) = listing_lines(LISTS[name](), OutputFormat.JSON)
    (same,) = listing_lines(LISTS[name](), OutputFormat.YAML)

    assert f"{shown}\n" == golden(f"kubectl-get-{name}.json", f"{shown}\n")
    assert yaml.safe_load(same) == json.loads(shown)


@pytest.mark.parametrize("name", LISTS)
def test_values_are_those_of_documents(name: str, golden: Golden) -> None:
    """Every value under the name it has in a document, and what is made of several as JSON."""
    shown = table(LISTS[name](), OutputFormat.CSV)

    assert shown == golden(f"kubectl-get-{name}.csv", shown)
    heads, *found = csv.reader(io.StringIO(shown))
    (document,) = listing_lines(LISTS[name](), OutputFormat.JSON)
    items = json.loads(document)["items"]
    assert [dict(zip(heads, row, strict=True)) for row in found] == [
        {key: cell(value) for key, value in item.items()} for item in items
    ]


def cell(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"))


def test_values_without_rows_have_their_names() -> None:
    """Whoever reads them need not know that there are none."""
    empty = node_listing(site([], []))

    assert table(empty, OutputFormat.CSV).startswith("name,models,modes,gpus,")
    assert table(empty, OutputFormat.CSV, headed=False) == ""


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        pytest.param("nodes", "FITS", ["gpu-b", "gpu-a", "gpu-c"], id="none-comes-last"),
        pytest.param("nodes", "PROMISED", ["gpu-a", "gpu-b", "gpu-c"], id="percent"),
        pytest.param("nodes", "MEMORY", ["gpu-c", "gpu-b", "gpu-a"], id="only-in-wide"),
        pytest.param(
            "gpus", "FITS", ["gpu-b/1", "gpu-b/0", "gpu-a/0", "gpu-a/1", "gpu-a/2"], id="amounts"
        ),
        pytest.param(
            "pods",
            "AGE",
            ["late-0", "half-0", "tune-0", "gone-1", "train-0", "eval-3", "eval-4"],
            id="ages-of-the-dead-too",
        ),
        pytest.param(
            "pods",
            "NAMESPACE",
            ["eval-3", "eval-4", "gone-1", "half-0", "late-0", "train-0", "tune-0"],
            id="not-shown-here",
        ),
    ],
)
def test_rows_are_sorted_by_what_a_column_says(name: str, column: str, expected: list[str]) -> None:
    """Numbers by their value; documents are in the same order."""
    listing = in_order(LISTS[name](), column)

    (document,) = listing_lines(listing, OutputFormat.JSON)
    assert [line.split()[0] for line in table(listing, headed=False).splitlines()] == expected
    assert [item["name"] for item in json.loads(document)["items"]] == expected


def test_a_table_may_go_without_header() -> None:
    """Scripts cut columns by blanks, so that no cell but the last may hold one."""
    listing = node_listing(site())

    with_header = [line.split() for line in table(listing).splitlines()]
    assert [line.split() for line in table(listing, headed=False).splitlines()] == with_header[1:]
    rows = gpu_listing(site()).cells
    assert all(" " not in cell for row in rows for cell in row[:-1])


def test_states_tell_how_far_a_request_has_come() -> None:
    """A promise without a pod is told, and so is a bound pod without a promise."""
    found = {row.name: row.state for row in rows()}

    assert found == {
        "train-0": PodState.RUNNING,
        "tune-0": PodState.RESERVED,
        "eval-3": PodState.RUNNING,
        "eval-4": PodState.ENDED,
        "gone-1": PodState.GONE,
        "half-0": PodState.WAITING,
        "late-0": PodState.BYPASSED,
    }


def test_what_is_gone_is_not_told_of_a_selection() -> None:
    """Pods that a selector left out exist all the same; other namespaces are not asked about."""
    assert not pod_rows(site(), [], gone=False, namespace=None)
    assert not pod_rows(site(), [], gone=True, namespace="team-b")
    assert {row.state for row in pod_rows(site(), [], gone=True, namespace="team-a")} == {
        PodState.GONE
    }


def test_a_request_that_cannot_be_read_is_no_request_for_nothing() -> None:
    """It is listed, with what is not known said to be so."""
    odd = pod_of(
        {
            "metadata": {"name": "odd", "namespace": "team-a", "uid": "odd"},
            "spec": {"containers": [{"name": "a", "resources": {"limits": {MEMORY: "8Gi"}}}]},
        }
    )

    (row,) = pod_rows(site(), [odd], gone=False, namespace=None)

    assert (row.state, row.asked) == (PodState.WAITING, None)
    assert "<unknown>" in table(pod_listing([row], NOW, spaces=False))


@pytest.mark.parametrize(
    ("machines", "out"),
    [
        pytest.param([machine("gpu-b")], "", id="in-service"),
        pytest.param([machine("gpu-b", cordoned=True)], "it is cordoned", id="cordoned"),
        pytest.param(
            [machine("gpu-b", ready="Unknown")], "its kubelet is not ready", id="not-ready"
        ),
        pytest.param([], "it is no longer a node of the cluster", id="gone"),
        pytest.param(
            [machine("gpu-b") | {"status": {"nodeInfo": {"bootID": "boot-2"}}}],
            'its GPUs were reported in the boot "boot-1", but its Node is in the boot "boot-2"',
            id="booted-anew",
        ),
    ],
)
def test_a_node_out_of_service_fits_nothing(machines: list[dict[str, object]], out: str) -> None:
    """What is free there cannot be had, whatever the ledger says."""
    found = site([gpu_node(soft())], machines)

    (row,) = node_rows(found)
    assert row.out == out
    assert (row.fits_mib is None) == bool(out)
    assert {gpu.fits_mib is None for gpu in gpu_rows(found)} == {bool(out)}


def test_who_uses_gpus_without_an_entry_is_named_with_the_node() -> None:
    """The node is in service, and its row says whose use nobody was asked about."""
    use = [entry(name, soft_grant(1000, gpu="GPU-gpu-b-0")) for name in ("one", "two")]
    found = site([gpu_node(soft(), unpromised=spec_of(use)["entries"])], [machine("gpu-b")])

    (row,) = node_rows(found)
    assert (row.out, row.strangers) == ("", ("team-a/one", "team-a/two"))
    shown = table(node_listing(found), OutputFormat.WIDE)
    assert "without an entry: team-a/one, team-a/two" in shown


def test_nodes_that_may_not_be_read_are_in_service() -> None:
    """A person without that right still sees GPUs, and their age from the GPUNode."""
    found = cluster_view([gpu_node(hard(), held_hard())], None, now=NOW)

    assert [row.out for row in node_rows(found)] == [""]


def test_a_gpunode_that_cannot_be_read_is_told_and_left_out() -> None:
    """One odd object does not hide the others; then nothing may be said never to fit."""
    broken = {"metadata": {"name": "odd"}, "status": {"bootID": 7}}

    found = site([broken, gpu_node(soft())], [machine("gpu-b"), machine("odd")])

    assert list(found.ledgers) == ["gpu-b"]
    assert 'GPUNode "odd" cannot be read' in found.unreadable[0]
    assert not found.snapshot().complete
