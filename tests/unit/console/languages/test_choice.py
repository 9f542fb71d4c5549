"""The language: the address wins, then the browser; nothing that a header holds is an error."""

import pytest

from console.languages.choice import (
    Language,
    LanguageChoice,
    language_choice,
    named_language,
    preferred_language,
    with_language,
)

ENGLISH, CHINESE = Language.ENGLISH, Language.CHINESE


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", ENGLISH),
        ("zh", CHINESE),
        ("zh-CN,zh;q=0.9,en;q=0.8", CHINESE),
        ("zh-Hans-CN", CHINESE),
        ("ZH-cn", CHINESE),
        ("en-US,en;q=0.9,zh-CN;q=0.8", ENGLISH),
        ("zh;q=0.8, en;q=0.9", ENGLISH),
        ("en;q=0.1,zh;q=0.2", CHINESE),
        ("de-DE,de;q=0.9", ENGLISH),
        ("de-DE,zh;q=0.1", CHINESE),
        ("zh;q=0", ENGLISH),
        ("en;q=0,zh;q=0.001", CHINESE),
        ("zh;q=0.5,en;q=0.5", CHINESE),
        ("*", ENGLISH),
        ("zh;q=0.5,*;q=0.6", ENGLISH),
        ("zh ; q=0.9 , en ; q=0.1", CHINESE),
    ],
)
def test_the_largest_weight_wins(header: str, language: Language) -> None:
    """As RFC 9110 says; of equals the earlier one, and English where none is of ours."""
    assert preferred_language(header) is language


@pytest.mark.parametrize(
    "header",
    [
        "zh;q=2",
        "zh;q=-1",
        "zh;q=nan",
        "zh;q=1e9",
        "zh;q=" + "9" * 10_000,
        "zh" * 100_000,
        "de," * 40 + "zh",
        " " * 2_000 + "zh",
        "," * 100_000,
        ";q=1",
        "zh_CN",
        "zhx",
        "<script>alert(1)</script>",
        "../../zh",
        "\x00zh",
        "\u202ezh",
        "中文",
        "zh\r\nset-cookie: a=b",
        "zh;q=0.1234",
        "-" * 5_000,
    ],
)
def test_a_hostile_header_is_english(header: str) -> None:
    """It is bounded, and no error."""
    assert language_choice("", header) == LanguageChoice(ENGLISH)


@pytest.mark.parametrize(
    "named", ["", "de", "ZH", "zh-CN", "zh ", "<b>", "zh\x00", "en,zh", "../zh", "中文", "z" * 9999]
)
def test_an_address_that_names_no_language_of_ours_leaves_the_choice_to_the_browser(
    named: str,
) -> None:
    assert language_choice(named, "zh") == LanguageChoice(CHINESE)
    assert language_choice(named, "") == LanguageChoice(ENGLISH)


def test_an_address_wins_over_the_browser() -> None:
    assert language_choice("en", "zh") == LanguageChoice(ENGLISH, named=True)
    assert language_choice("zh", "en") == LanguageChoice(CHINESE, named=True)


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("/pods", "/pods?lang=zh"),
        ("/pods?ns=a", "/pods?ns=a&lang=zh"),
        ("/pods?lang=en&ns=a&lang=en", "/pods?ns=a&lang=zh"),
        ("/reasons#NodeName", "/reasons?lang=zh#NodeName"),
        ("#gpu-1", "#gpu-1"),
        ("", ""),
        ("/decisions?q=lang%3Den&language=x", "/decisions?q=lang%3Den&language=x&lang=zh"),
    ],
)
def test_an_address_keeps_all_but_its_language(href: str, expected: str) -> None:
    assert with_language(href, CHINESE) == expected
    assert LanguageChoice(CHINESE, named=True).kept(href) == expected
    assert LanguageChoice(CHINESE).kept(href) == href


def test_the_last_language_of_a_query_is_the_one_it_names() -> None:
    assert named_language("a=b&lang=en&lang=zh") == "zh"
    assert named_language("xlang=zh&a") == named_language("") == ""


def test_each_language_offers_the_other() -> None:
    for language in Language:
        choice = LanguageChoice(language)
        assert LanguageChoice(choice.other).other is language
        assert choice.translates is (language is CHINESE)
