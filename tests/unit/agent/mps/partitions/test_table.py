"""What a daemon with static partitioning answers, as a stranger's text too."""

import pytest

from agent.mps.commands import MpsAnswerError
from agent.mps.partitions.table import (
    MOST_PARTITIONS,
    Holder,
    ListedPartition,
    add_partition,
    partition_name,
    partition_table,
    remove_partition,
)

GPU = "GPU-3a2f7c1e-0000-0000-0000-000000000000"
HEADING = """GPU           Partition    free    used    free   used   clients
                           chunk   chunk   SM     SM
"""
ROW = "GPU-3a2f7c1e  -  7  9  56  72  -\n"


@pytest.mark.parametrize(
    "answer", [f"{GPU}/Dx4AAA=", f"Partition {GPU}/Dx4AAA= created\n", f"\n{GPU}/Dx4AAA=\r\n"]
)
def test_a_partition_that_was_made_is_named(answer: str) -> None:
    """Alone or in a sentence; the commands about it name GPU and partition."""
    assert partition_name(answer) == "Dx4AAA="
    assert add_partition(GPU, 2) == f"sm_partition add {GPU} 2"
    assert remove_partition(GPU, "Dx4AAA=") == f"sm_partition rm {GPU} Dx4AAA="
    assert str(Holder("uid-1", "main")) == "uid-1/main"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "\n",
        "OK",
        GPU,
        f"{GPU}/",
        f"{GPU}/a b/c {GPU}/d",
        f"{GPU}/../../etc\x00",
        f"{GPU}/$(reboot)",
        f"{GPU}/{'A' * 129}",
        f"GPU-x/{'A' * 8}",
        f"MIG-{GPU[4:]}/Dx4",
        f"{GPU}/Dx4\x1b[31m",
        f"{GPU}/Dx4\u202e",
    ],
)
def test_what_names_no_partition_is_refused(answer: str) -> None:
    """It would become a container's variable, or part of a command."""
    with pytest.raises(MpsAnswerError, match="expected <UUID>/<name>"):
        partition_name(answer)


def test_the_table_says_what_is_free_and_who_is_in() -> None:
    """A GPU has the chunks that are free and those that are used."""
    table = partition_table(
        HEADING + ROW + "GPU-3a2f7c1e  DxA=  -  7  -  56  Yes\nGPU-3a2f7c1e  DxB  -  2  -  16  No\n"
    )

    assert (table.free, table.used, table.chunks) == (7, 9, 16)
    assert table.partitions == {
        "DxA=": ListedPartition(chunks=7, in_use=True),
        "DxB": ListedPartition(chunks=2, in_use=False),
    }


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Unknown command",
        HEADING,
        ROW + ROW,
        "GPU-3a2f7c1e  -  0  0  0  0  -",
        "GPU-3a2f7c1e  -  60  60  0  0  -",
        "GPU-3a2f7c1e  -  -1  9  56  72  -",
        "GPU-3a2f7c1e  -  1e3  9  56  72  -",
        "GPU-3a2f7c1e  -  99999  9  56  72  -",
        "GPU-3a2f7c1e  -  7  9",
        "GPU-3a2f7c1e  DxA  -  2  -  16  No",
        ROW + "GPU-3a2f7c1e  Dx;rm  -  2  -  16  No",
        ROW + "GPU-3a2f7c1e  DxA  -  x  -  16  No",
        ROW + "GPU-3a2f7c1e  DxA  -  2  -  16  No\n" * 2,
        ROW + f"GPU-3a2f7c1e  {'A' * 129}  -  2  -  16  No",
        ROW + "".join(f"GPU-3a2f7c1e  D{n}  -  1  -  8  No\n" for n in range(MOST_PARTITIONS + 1)),
    ],
)
def test_a_table_that_is_none_is_refused(answer: str) -> None:
    """Nothing is promised or removed by it."""
    with pytest.raises(MpsAnswerError):
        partition_table(answer)
