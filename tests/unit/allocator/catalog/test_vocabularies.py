"""A vocabulary is data that a cluster may adjust."""

import pytest

from allocator.catalog.vocabularies import GPUSHARE, LARGEST_FACTOR, VOLCANO, configure_vocabulary
from tests.builders.containers import GPU_MEM, MEMORY, NUMBER, box, findings, request


def test_memory_is_counted_in_the_unit_of_the_cluster() -> None:
    """The same number is another amount under another gpuMemoryFactor."""
    tens = configure_vocabulary(VOLCANO, memory_factor=10)

    asked = request(box({NUMBER: "1", MEMORY: "300"}), vocabularies=[tens])

    assert asked.containers[0].memory == 3000


def test_gpushare_may_count_in_mib() -> None:
    """The unit is the plugin's flag, not the pod's."""
    small = configure_vocabulary(GPUSHARE, memory_factor=1)

    asked = request(box({GPU_MEM: "2048"}), vocabularies=[VOLCANO, small])

    assert asked.containers[0].memory == 2048


def test_a_renamed_resource_is_read_by_its_new_name_only() -> None:
    """The old name is a slip then, and the new one is what it should have been."""
    renamed = configure_vocabulary(VOLCANO, names={MEMORY: "volcano.sh/vgpu-mem"})

    asked = request(box({"volcano.sh/vgpu-mem": "3k"}), vocabularies=[renamed])
    (finding,) = findings(box({MEMORY: "3k"}), vocabularies=[renamed])

    assert asked.containers[0].memory == 3000
    assert finding.remedy == "use volcano.sh/vgpu-mem"


@pytest.mark.parametrize("factor", [0, -1, LARGEST_FACTOR + 1])
def test_a_factor_that_makes_no_sense_is_refused(factor: int) -> None:
    """A factor of 0 once made a plugin divide by zero."""
    with pytest.raises(ValueError, match=f"memory factor {factor} is not between 1 and 1048576"):
        configure_vocabulary(VOLCANO, memory_factor=factor)


def test_two_resources_cannot_share_a_name() -> None:
    """A number cannot be a count and an amount at once."""
    with pytest.raises(ValueError, match="two resources share a name"):
        configure_vocabulary(VOLCANO, names={MEMORY: NUMBER})


def test_only_existing_resources_can_be_renamed() -> None:
    """A typing error in the configuration is reported."""
    with pytest.raises(ValueError, match="is not a resource of the vocabulary volcano"):
        configure_vocabulary(VOLCANO, names={GPU_MEM: "volcano.sh/x"})
