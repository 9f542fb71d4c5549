"""The form of Fit: values that are understood, and what is said of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.record import AskedPart
from allocator.model.request import Mode, Stage
from console.pages.fleet.fit import decided_request, fit_form
from console.records.query import PodOutcome
from tests.builders.console import row

KEYS = ("memory", "cores", "count", "mode", "model", "ns")


def test_all_values_are_read() -> None:
    values = {"memory": "18Gi", "cores": "40", "count": "2", "mode": "mig", "model": "A100"}
    amounts = fit_form(values).amounts

    assert amounts is not None
    assert (amounts.memory, amounts.cores, amounts.count) == (18432, 40, 2)
    assert (amounts.mode, amounts.models) == (Mode.MIG, ("A100",))


@pytest.mark.parametrize("values", [{}, {"ns": "team-a"}, {"memory": " "}])
def test_without_an_amount_nothing_is_asked(values: dict[str, str]) -> None:
    """A namespace alone is no request."""
    form = fit_form(values)

    assert form.amounts is None
    assert form.problems == {}


@pytest.mark.parametrize("mode", [Mode.MIG, Mode.HAMI_CORE, Mode.MPS])
def test_each_mode_that_a_pod_may_name_can_be_asked(mode: Mode) -> None:
    """None is missing from the form, and none is turned into another."""
    amounts = fit_form({"mode": str(mode)}).amounts

    assert amounts is not None
    assert amounts.mode is mode


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("memory", "8Gb"),
        ("memory", "-1"),
        ("memory", "9" * 30),
        ("cores", "101"),
        ("cores", "4.5"),
        ("cores", "\u0664"),
        ("count", "0"),
        ("count", "65"),
        ("mode", "smi"),
        ("mode", "MPS"),
        ("mode", "any"),
        ("mode", "sgpu"),
        ("mode", "mig,mps"),
        ("mode", "m\u200bps"),
        ("model", "x" * 65),
    ],
)
def test_a_bad_value_is_named_with_what_would_do(key: str, text: str) -> None:
    form = fit_form({key: text})

    assert form.amounts is None
    assert list(form.problems) == [key]
    assert "is not accepted; give " in form.problems[key]


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30)))
def test_any_text_is_an_answer(values: dict[str, str]) -> None:
    form = fit_form(values)

    assert form.amounts is None or not form.problems


def test_the_request_of_a_decision_is_asked_again() -> None:
    """With its stages; the mode only if the pod named it."""
    asked = (
        AskedPart(name="i", count=1, stage="init", memory_mib=1000),
        AskedPart(name="m", count=2, stage="app", memory_percent=50, cores_percent=30),
    )
    named = decided_request(row("p", "d", PodOutcome.WAITING, asked=asked, mode_source="named"))
    best = decided_request(row("p", "d", PodOutcome.WAITING, asked=asked))

    assert named is not None
    assert best is not None
    assert [one.stage for one in named.containers] == [Stage.INIT, Stage.APP]
    assert (named.mode, best.mode) == (Mode.MIG, None)
    assert (named.containers[1].percent, named.containers[1].cores) == (50, 30)
    assert decided_request(row("p", "d", PodOutcome.REFUSED, asked=())) is None
