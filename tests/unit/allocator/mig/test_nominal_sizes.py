"""Sizes that people read off a profile's name are a little more than the profile has."""

import pytest

from allocator.mig.nominal_sizes import missed_profile
from tests.builders.model import A30, A100_40, A100_80, H100, PRO_6000, ask, board


@pytest.mark.parametrize(
    ("product", "memory", "missed", "needed"),
    [
        pytest.param(A100_40, 5120, "1g.5gb", "2g.10gb", id="5120"),
        pytest.param(A100_40, 4865, "1g.5gb", "2g.10gb", id="one-too-many"),
        pytest.param(A100_40, 10240, "2g.10gb", "3g.20gb", id="10240"),
        pytest.param(A100_80, 10240, "1g.10gb", "2g.20gb", id="10240-of-80"),
        pytest.param(A100_80, 40960, "3g.40gb", "7g.80gb", id="40960-of-80"),
        pytest.param(H100, 20480, "2g.20gb", "3g.40gb", id="hopper"),
        pytest.param(A30, 6144, "1g.6gb", "2g.12gb", id="a30"),
        pytest.param(PRO_6000, 24576, "1g.24gb", "2g.48gb", id="blackwell"),
    ],
)
def test_the_size_in_a_name_needs_the_next_profile(
    product: str, memory: int, *, missed: str, needed: str
) -> None:
    """Sizes as in Volcano's own tables."""
    found = missed_profile(ask(memory), board(product))

    assert found is not None
    assert (found.missed.profile.name, found.needed.profile.name) == (missed, needed)
    assert missed_profile(ask(found.missed.memory), board(product)) is None


@pytest.mark.parametrize(
    ("memory", "cores", "named"),
    [
        pytest.param(4864, 0, None, id="fits"),
        pytest.param(5121, 0, None, id="more-than-the-name-says"),
        pytest.param(5120, 50, None, id="the-cores-need-more-anyway"),
        pytest.param(5120, 0, "2g.10gb", id="named"),
        pytest.param(40960, 0, None, id="nothing-serves"),
        pytest.param(1, 0, None, id="least"),
    ],
)
def test_nothing_is_missed_otherwise(memory: int, cores: int, named: str | None) -> None:
    """A warning is for those who pay for a few MiB with a class."""
    assert missed_profile(ask(memory, cores=cores), board(A100_40), named) is None
    assert missed_profile(ask(percent=50), board(A100_40)) is None
    assert missed_profile(ask(memory), None) is None
