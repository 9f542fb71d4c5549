"""The list names every vocabulary with all that people may write in it."""

import dataclasses

import pytest

from allocator.catalog.vocabularies import CATALOGUE, GPUSHARE, HAMI, VOLCANO, Vocabulary
from allocator.model.request import Mode
from allocator.report.vocabulary_list import (
    annotation_keys,
    modes_in,
    nodes_served_by,
    resource_units,
    vocabulary_document,
    vocabulary_rows,
)
from allocator.request.annotation_keys import read_keys
from tests.builders.acme import ACME_WORDS, known_family


@pytest.mark.parametrize("vocabulary", CATALOGUE, ids=lambda each: str(each.name))
def test_no_name_is_left_out(vocabulary: Vocabulary) -> None:
    """Each resource has a unit, and each key of the ecosystem is read of its pods."""
    listed = dict(resource_units(vocabulary))
    keys = dict(annotation_keys(vocabulary))

    assert set(listed) == set(vocabulary.resources)
    assert all(listed.values())
    assert set(keys) <= read_keys(vocabulary)
    named = {
        getattr(vocabulary, field.name)
        for field in dataclasses.fields(vocabulary)
        if field.name.endswith("_key") or field.name.startswith(("use_", "not_"))
    }
    if (shares := vocabulary.share_keys) is not None:
        named |= {shares.policy, shares.app_class}
    assert set(keys) == named - {None}


def test_units_are_those_of_the_cluster() -> None:
    """As the factor of the vocabulary says."""
    odd = dataclasses.replace(HAMI, memory_factor=256)

    assert dict(resource_units(VOLCANO))["volcano.sh/vgpu-memory"] == "MiB on each GPU"
    assert dict(resource_units(GPUSHARE))["aliyun.com/gpu-mem"] == "GiB on each GPU"
    assert dict(resource_units(odd))["nvidia.com/gpumem"] == "units of 256 MiB on each GPU"


def test_modes_are_those_that_a_pod_may_get() -> None:
    """A vocabulary with a mode of its own has no other, unless a key opts out of it."""
    assert modes_in(VOLCANO) == VOLCANO.named_modes
    assert modes_in(GPUSHARE) == (Mode.MEMORY_ONLY, Mode.HAMI_CORE)


def test_the_document_says_who_serves_the_nodes() -> None:
    """Our agent, or the plugin of a family that has one."""
    with known_family():
        (found,) = vocabulary_document([ACME_WORDS], ())["vocabularies"]

        assert found["nodesServedBy"] == "the device plugin of acme"
        assert (found["served"], found["family"]) == (False, "acme")
    assert nodes_served_by(VOLCANO).startswith("vgpu-admission")


def test_a_row_without_meaning_heads_a_vocabulary() -> None:
    """And says whether it is served."""
    heads = [name for name, meaning in vocabulary_rows(CATALOGUE, ("volcano",)) if not meaning]

    assert len(heads) == len(CATALOGUE)
    assert ["; served)" in head for head in heads] == [v is VOLCANO for v in CATALOGUE]
