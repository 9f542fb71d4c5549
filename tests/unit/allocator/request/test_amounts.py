"""Each value that cannot be meant has its own sentence, with its bound and a way out."""

import pytest

from allocator.catalog.vocabularies import CATALOGUE, Vocabulary
from allocator.request.amounts import LARGEST_GROUP, PartialFinding, amount, group_size
from allocator.request.quantity import canonical
from allocator.request.resource_names import resource_names
from tests.builders.containers import (
    CORES,
    GPU_COUNT,
    GPU_MEM,
    MEMORY,
    NUMBER,
    PERCENT,
    only,
    refusal,
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("8Gi", '"8Gi" would mean 8589934592 MiB; give MiB, e.g. 8192', id="gi"),
        pytest.param("512Mi", '"512Mi" would mean 536870912 MiB; give MiB, e.g. 512', id="mi"),
        pytest.param("16G", '"16G" would mean 16000000000 MiB; give MiB, e.g. 15259', id="g"),
        pytest.param("4294M", '"4294M" would mean 4294000000 MiB; give MiB, e.g. 4096', id="m"),
        pytest.param("3000m", '"3000m" would mean 3 MiB; give MiB, e.g. 3', id="thousandths"),
        pytest.param("-1", '"-1" is negative; give MiB, e.g. 4096', id="negative"),
        pytest.param("1.5", '"1.5" is not a whole number; give MiB, e.g. 2', id="fraction"),
        pytest.param("lots", '"lots" is not a number; give MiB, e.g. 4096', id="word"),
        pytest.param(
            "3221225472",
            "3221225472 is more than 2147483647 MiB; give MiB, e.g. 3072",
            id="bytes",
        ),
        pytest.param(
            "9Ei",
            '"9Ei" would mean 10376293541461622784 MiB; give MiB, e.g. 4096',
            id="beyond-64-bits",
        ),
    ],
)
def test_memory_that_cannot_be_meant_is_refused(text: str, sentence: str) -> None:
    """No suffix means bytes, and the value to paste is in MiB."""
    message = refusal({NUMBER: "1", MEMORY: text})

    assert message == f'container "main": vgpu-memory {sentence} [MalformedRequest]'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("8Gi", '"8Gi" would mean 8589934592 GiB; give GiB, e.g. 8', id="gi"),
        pytest.param("1.5", '"1.5" is not a whole number; give GiB, e.g. 2', id="fraction"),
        pytest.param("0x4", '"0x4" is not a number; give GiB, e.g. 4', id="hexadecimal"),
        pytest.param(
            "2097152", "2097152 is more than 2097151 GiB; give GiB, e.g. 1", id="times-1024"
        ),
    ],
)
def test_the_unit_is_that_of_the_vocabulary(text: str, sentence: str) -> None:
    """What is GiB elsewhere is neither read nor recommended as MiB, and no factor overflows."""
    message = refusal({GPU_MEM: text})

    assert message == f'container "main": gpu-mem {sentence} [MalformedRequest]'


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        pytest.param(
            NUMBER,
            "17",
            "vgpu-number 17 is more than the 16 GPUs that one container can use; "
            "ask for at most 16 [TooManyDevices]",
            id="count",
        ),
        pytest.param(
            GPU_COUNT,
            "1k",
            "gpu-count 1000 is more than the 16 GPUs that one container can use; "
            "ask for at most 16 [TooManyDevices]",
            id="count-elsewhere",
        ),
        pytest.param(
            CORES,
            "140",
            "vgpu-cores 140 is more than one whole GPU; ask for at most 100 [GpuCoresShort]",
            id="cores",
        ),
        pytest.param(
            PERCENT,
            "101",
            "vgpu-memory-percentage 101 is outside 1 to 100; ask for at most 100 "
            "[MalformedRequest]",
            id="percentage",
        ),
        pytest.param(
            PERCENT,
            "-5",
            'vgpu-memory-percentage "-5" is negative; give a whole number from 1 to 100, e.g. 50 '
            "[MalformedRequest]",
            id="negative-percentage",
        ),
        pytest.param(
            NUMBER,
            "0.5",
            'vgpu-number "0.5" is not a whole number; give a whole number, e.g. 1 '
            "[MalformedRequest]",
            id="half-a-gpu",
        ),
    ],
)
def test_every_other_value_has_bounds(name: str, text: str, sentence: str) -> None:
    """Counts end at what the library can limit, shares at one whole GPU."""
    assert refusal({name: text}) == f'container "main": {sentence}'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("3000", id="digits"),
        pytest.param("3k", id="as-the-api-server-writes-it"),
        pytest.param("3e3", id="exponent"),
        pytest.param("3000.0", id="needless-point"),
        pytest.param(3000, id="integer"),
    ],
)
def test_one_number_may_be_written_in_many_ways(text: str | int) -> None:
    """3000 MiB are 3000 MiB, however YAML and the API server spelled it."""
    assert only({NUMBER: "1", MEMORY: text}).memory == 3000


@pytest.mark.parametrize(
    "text",
    ["", "0", "-8", "+8", "8.0", "1e3", "0x10", " 8", "8 ", "٨", "65537", "9" * 400, "08", "8\n"],
)
def test_what_is_no_size_counts_as_none(text: str) -> None:
    """Admission refuses it; a pod that came past admission is in no group by it."""
    assert group_size(text) == 0


def test_a_size_is_a_number_of_gpus_up_to_a_bound() -> None:
    """As it is written in the annotation."""
    assert group_size("64") == 64
    assert group_size(str(LARGEST_GROUP)) == LARGEST_GROUP


@pytest.mark.parametrize("text", ["512Ki", "1Ki", "1023Ki", "0.5Mi", "0Gi"])
def test_bytes_below_one_mib_are_no_memory(text: str) -> None:
    """They would become 0, which is all memory."""
    memory = resource_names(CATALOGUE).by_name["metax-tech.com/vmemory"]

    assert isinstance(amount(memory, text), PartialFinding)
    assert amount(memory, "1Mi") == 1


COUNTED = [v for v in CATALOGUE if v.memory is not None and not v.memory_in_bytes]
THOUSANDS = [1000, 64_000, 999_000, 1_000_000, 2_000_000, 9_000_000, 1_500_000, 12_000_000]


@pytest.mark.parametrize("number", [*THOUSANDS, 10**9, 2 * 10**9])
@pytest.mark.parametrize("vocabulary", COUNTED, ids=lambda vocabulary: vocabulary.name)
def test_a_number_stays_legal_as_the_api_server_writes_it(
    vocabulary: Vocabulary, number: int
) -> None:
    """9000000 comes as ``9M``; it is the same request, or too large in the same way."""
    memory = resource_names(CATALOGUE).by_name[vocabulary.memory or ""]
    plain, written = amount(memory, number), amount(memory, canonical(number))

    assert isinstance(written, int) is (number <= memory.most)
    assert written == plain or isinstance(plain, PartialFinding)


@pytest.mark.parametrize("vocabulary", COUNTED, ids=lambda vocabulary: vocabulary.name)
@pytest.mark.parametrize(
    "text",
    [
        "9Mi",
        "9Gi",
        "9Ki",
        "9T",
        "9E",
        "9m",
        "-9M",
        "-9k",
        "9.0000001M",
        "9MM",
        "9 M",
        "M",
        "9\u041c",
        "\uff19M",
        "9M\n",
        f"{'9' * 70}M",
    ],
)
def test_no_other_suffix_becomes_a_number(vocabulary: Vocabulary, text: str) -> None:
    """The API server writes none of these for a number of units."""
    memory = resource_names(CATALOGUE).by_name[vocabulary.memory or ""]

    assert isinstance(amount(memory, text), PartialFinding)


@pytest.mark.parametrize("text", ["1M", "2M", "2000k", "1500k"])
def test_what_may_be_bytes_or_units_is_refused(text: str) -> None:
    """Only where a suffix can mean bytes; there ``k`` is too little to mean them."""
    memory = resource_names(CATALOGUE).by_name["metax-tech.com/vmemory"]

    assert isinstance(amount(memory, text), PartialFinding) is text.endswith("M")
