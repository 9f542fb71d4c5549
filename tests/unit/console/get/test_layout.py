"""Drawings: every slot and every MiB has its place, and every letter a holder."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.gpu import Gpu
from allocator.model.request import Mode, Stage
from allocator.model.units import MiB
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from console.get.layout import layout_lines
from tests.builders.gpunodes import entry, gpu_node, held, several
from tests.builders.model import (
    A30,
    A100_40,
    PRO_6000,
    T4,
    gpu,
    mig_grant,
    node,
    placed,
    soft_grant,
)
from tests.unit.console.sites import machine, site

Golden = Callable[[str, str], str]


def text(*gpus: Gpu) -> str:
    """Draw one node with these GPUs, each grant held by a pod of its own."""
    standing = node("n0", *gpus)
    grants = [grant for one in standing.gpus for grant in one.grants]
    entries = [entry(f"pod-{number}", grant) for number, grant in enumerate(grants)]
    found = site([gpu_node(standing, entries)], [machine("n0")])
    shown = list(map(plain_text, printed_lines(layout_lines(found))))
    assert max(map(len, shown)) <= WIDTH
    return "".join(f"{line}\n" for line in shown)


def test_a_site_is_drawn_as_reviewed(golden: Golden) -> None:
    """The drawing stands in tests/golden; --update-golden writes it anew."""
    lines = list(map(plain_text, printed_lines(layout_lines(site()))))
    shown = "".join(f"{line}\n" for line in lines)

    assert shown == golden("kubectl-layout.txt", shown)


def test_what_containers_share_is_drawn_once() -> None:
    """An init container is over when the app starts, so the bar is no longer for it."""
    grant = soft_grant(9000, gpu="GPU-n0-0")
    one = several("p", held(Stage.INIT, grant), held(Stage.APP, grant))
    found = site([gpu_node(node("n0", gpu(T4)), (one,))], [machine("n0")])

    shown = list(map(plain_text, printed_lines(layout_lines(found))))

    assert "1 of 10 shares, 9000 of 15360 MiB" in shown[1]
    assert [line.strip() for line in shown[3:]] == ["a  team-a/p, app: 9000 MiB"]


@pytest.mark.parametrize("product", [A30, A100_40, PRO_6000])
def test_every_slot_of_any_board_is_numbered(product: str) -> None:
    """Also the last one of a board with twelve fits into the width."""
    one = gpu(product, mode=Mode.MIG)
    assert one.board is not None

    numbers = text(one).splitlines()[2].split()

    assert numbers == [str(slot) for slot in range(one.board.slots)]


def test_boxes_stand_above_each_other() -> None:
    """An instance begins under the number of its first slot, whatever stands before it."""
    grants = [mig_grant("1g.5gb", 2), mig_grant("3g.20gb", 4)]
    one = gpu(A100_40, mode=Mode.MIG, grants=grants, instances=[placed("1g.5gb", 0)])

    _, _, numbers, boxes, *_ = text(one).splitlines()

    assert [boxes[numbers.index(str(slot))] for slot in (0, 1, 2, 3, 4)] == [
        "[",
        ".",
        "[",
        ".",
        "[",
    ]
    assert boxes[numbers.index("4") :].startswith("[b 3g")


@given(grants=st.lists(st.integers(1, 5000), max_size=60), foreign=st.integers(0, 20_000))
def test_a_bar_is_as_long_as_the_memory(grants: list[int], foreign: int) -> None:
    """However much is promised or taken by others, no bar is longer or shorter than another."""
    one = replace(gpu(T4, grants=[soft_grant(m) for m in grants]), foreign=MiB(foreign))

    bar = text(one).splitlines()[2]

    assert len(bar) == WIDTH - 2
    assert ("#" in bar) <= (foreign > 0)
