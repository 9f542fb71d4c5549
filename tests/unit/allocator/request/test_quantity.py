"""Quantities mean what Kubernetes says they mean."""

from fractions import Fraction

import pytest

from allocator.request.quantity import LARGEST, LONGEST, canonical, parse, parse_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("3k", 3000, id="what-3000-becomes"),
        pytest.param("12288", 12288, id="left-as-it-was"),
        pytest.param("10240", 10240, id="no-multiple-of-a-thousand"),
        pytest.param("3Gi", 3221225472, id="binary"),
        pytest.param("3e3", 3000, id="exponent"),
        pytest.param("3000m", 3, id="thousandths"),
        pytest.param("1500m", Fraction(3, 2), id="fraction-in-thousandths"),
        pytest.param("1.5", Fraction(3, 2), id="fraction"),
        pytest.param("0", 0, id="zero"),
        pytest.param("-1", -1, id="negative"),
        pytest.param(".5Gi", 536870912, id="no-digit-before-the-point"),
        pytest.param("1E", 10**18, id="exa-not-exponent"),
    ],
)
def test_a_quantity_has_one_exact_value(text: str, value: Fraction) -> None:
    """The value is exact, whatever the way it was written."""
    quantity = parse(text)

    assert quantity is not None
    assert quantity.value == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("abc", id="letters"),
        pytest.param("NaN", id="not-a-number"),
        pytest.param("k", id="suffix-alone"),
        pytest.param("1.5.0", id="two-points"),
        pytest.param("3K", id="wrong-case"),
        pytest.param("0x10", id="hexadecimal"),
        pytest.param("1_000", id="underscore"),
        pytest.param("٣", id="digit-of-another-script"),
        pytest.param("1e", id="empty-exponent"),
        pytest.param("--1", id="two-signs"),
        pytest.param("1" * (LONGEST + 1), id="too-long"),
    ],
)
def test_what_kubernetes_does_not_read_is_no_quantity(text: str) -> None:
    """Neither reader accepts what the API server would not."""
    assert parse(text) is None
    assert parse_plain(text) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(0, "0", id="zero"),
        pytest.param(3000, "3k", id="thousands"),
        pytest.param(10240, "10240", id="no-thousands"),
        pytest.param(1000000, "1M", id="million"),
        pytest.param(1500000, "1500k", id="thousands-of-a-million"),
        pytest.param(-2000, "-2k", id="negative"),
        pytest.param(9 * 10**18, "9E", id="largest-suffix"),
        pytest.param(LARGEST, "9223372036854775807", id="largest"),
    ],
)
def test_a_number_is_written_as_the_api_server_writes_it(number: int, text: str) -> None:
    """What we write into a pod comes back unchanged."""
    assert canonical(number) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("3000", 3000, id="digits"),
        pytest.param("3k", 3000, id="thousands"),
        pytest.param(3000, 3000, id="integer"),
        pytest.param("3M", None, id="unit"),
        pytest.param("-3", None, id="negative-text"),
        pytest.param(-3, None, id="negative-integer"),
        pytest.param("", None, id="empty"),
    ],
)
def test_the_quick_reader_leaves_the_rest_to_the_thorough_one(
    text: str | int, number: int | None
) -> None:
    """Only plain counts are read quickly."""
    assert parse_plain(text) == number


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        pytest.param("3k", False, id="thousands"),
        pytest.param("3e3", False, id="exponent"),
        pytest.param("3", False, id="none"),
        pytest.param("3M", True, id="decimal"),
        pytest.param("3Mi", True, id="binary"),
        pytest.param("3m", True, id="thousandths"),
    ],
)
def test_a_unit_is_told_from_what_the_api_server_writes_by_itself(text: str, *, unit: bool) -> None:
    """3000 comes back as 3k, so k alone says nothing about what the user wrote."""
    quantity = parse(text)

    assert quantity is not None
    assert quantity.unit is unit


def test_what_the_api_server_cannot_hold_overflows() -> None:
    """Beyond 64 bits a number is known to be too large, and no memory is spent on it."""
    sizes = [parse(text) for text in ("8Ei", "1e999999999999", "-9.3E", "9223372036854775807")]

    assert [size is not None and size.overflow for size in sizes] == [True, True, True, False]


def test_a_number_below_every_bound_is_a_fraction() -> None:
    """A tiny exponent neither rounds to zero nor costs anything."""
    quantity = parse("1e-999999999999")

    assert quantity is not None
    assert quantity.fraction
    assert not quantity.negative
