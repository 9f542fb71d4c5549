"""The pages in Chinese: each text of ours, nobody else's; addresses keep the language."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from console.access.viewer import Viewer
from console.pages.audit.records import KINDS
from console.records.query import PodOutcome
from console.serve.page_routes import page_routes
from tests.builders.console import (
    HOSTILE,
    REFUSAL,
    RULE,
    row,
    typical_records,
    typical_rows,
    typical_usage,
)
from tests.fakes.record_store import FakeRecordStore
from tests.harness.asgi import get, post
from tests.harness.console_site import console_app, services, services_of
from tests.harness.page_checks import problems_of
from tests.integration.console.serve.test_page_routes import HOSTILE_PATHS, PATHS

CHINESE = {"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"}
# What stays English: addresses and names of the tests' cluster, and what programs recorded.
RECORDED = (
    *REFUSAL.split("; "),
    RULE,
    "short by 10640 MiB on the closest of 2 GPUs; try at most 4360 MiB",
    "2 nodes",
    "recut first",
    "holds 20100 MiB of 19968",
    "serving certificate renewed",
    "service account vgpu-webhook, by its token",
    "service account vgpu-agent, by its token",
    "made 3g.20gb",
    "XID 79: it has fallen off the bus",
    "any container may name GPUs",
    "its agent has not reported its GPUs yet",
)
# Words that are the same in Chinese: names of products, objects, settings, and tokens of records.
SAME = re.compile(
    r"\b(uid|mig|mps|hami-core|hami|prefer|vocabularies|vgpu-admission|webhook|agent|requests|limits"
    r"|nodeName|dragonfly|switchbox|example|memory|mutate|create|workload|off|library|kubectl-edit"
    r"|flux|train|main|container|worker|since|kind|until|option|prometheus|token)\b"
)
NAMES = re.compile(r'"[^"]*"|' r"[\w.:@/~-]*[\d@/:._-][\w.:@/~-]*|\{\w+\}")
# Sentences that kubectl vgpu prints too.
OF_TERMINAL = frozenset({"now", "fit", "today", "answer-1"})


def texts(html: str) -> list[str]:
    """Return the texts and labels of a page without code, and without what terminals share."""
    for name in OF_TERMINAL:
        html = re.sub(rf'<h2 id="{name}">.*?</section>', "", html, flags=re.DOTALL)
    for tag in ("code", "pre", "textarea", "script", "bdi data"):
        html = re.sub(rf"<{tag}\b.*?</{tag}>", "", html, flags=re.DOTALL)
    html = re.sub(r' (?:data-copy|datetime|value|class|id|name|lang)="[^"]*"', "", html)
    labels = re.findall(r'(?:aria-label|title|data-\w+)="([^"]*)"', html)
    return [unescape(text) for text in (*re.findall(r">([^<]+)<", html), *labels)]


def english_words(text: str) -> list[str]:
    """Return words of English in *text* that are no names and were not recorded."""
    for recorded in RECORDED:
        text = text.replace(recorded, "")
    if text.strip() in KINDS:
        return []
    return re.findall(r"\b[a-z]{2,}\b", SAME.sub("", NAMES.sub("", text)))


@pytest.mark.parametrize("kind", ["typical", "empty", "measured"])
@pytest.mark.parametrize("name", PATHS)
def test_no_text_of_ours_is_english_on_a_chinese_page(kind: str, name: str) -> None:
    answer = get(console_app(kind), PATHS[name], CHINESE)
    left = {text.strip(): words for text in texts(answer.text) if (words := english_words(text))}

    assert left == {}
    assert '<html lang="zh-Hans">' in answer.text
    assert problems_of(answer.text) == []


def test_the_check_for_english_finds_it() -> None:
    english = get(console_app(), "/decisions").text

    assert any("latest" in english_words(text) for text in texts(english))


@pytest.mark.parametrize("kind", ["typical", "empty", "measured"])
@pytest.mark.parametrize("name", PATHS)
def test_a_language_that_an_address_names_is_kept_by_every_link(kind: str, name: str) -> None:
    """But for those to data, which have no language, and to places on the same page."""
    path = PATHS[name]
    html = get(console_app(kind), f"{path}{'&' if '?' in path else '?'}lang=zh").text
    links = [unescape(link) for link in re.findall(r'<a [^>]*?href="([^"]*)"', html)]
    pages = [one for one in links if not one.startswith("#") and "format=" not in one]

    assert [one for one in pages if "lang=" not in one] == []
    assert [one for one in links if "format=" in one and "lang=" in one] == []
    assert sum("lang=en" in one for one in pages) == 1
    forms = re.findall(r"<form [^>]*>", html)
    asked = html.count('<input type="hidden" name="lang" value="zh">')
    posted = [form for form in forms if 'action="/fit?lang=zh" method="post"' in form]
    assert asked + len(posted) == len(forms)


@pytest.mark.parametrize("name", PATHS)
def test_a_language_of_the_browser_is_in_no_address(name: str) -> None:
    """Whoever is sent such an address reads the page in a language of their own."""
    html = get(console_app(), PATHS[name], CHINESE).text

    assert re.findall(r'lang=zh|name="lang"', html) == []
    assert re.findall(r'href="[^"]*lang=en"', html) != []


@pytest.mark.parametrize("name", PATHS)
def test_the_switch_leads_to_the_same_page_in_the_other_language(name: str) -> None:
    """With all that the address asks; and back to the page where one began."""
    app = console_app()
    english = get(app, PATHS[name])
    there = _switch(english.text)
    path = PATHS[name].partition("?")[0]
    chinese = get(app, path + there)
    back = get(app, path + _switch(chinese.text))

    assert "lang=zh" in there
    assert '<html lang="zh-Hans">' in chinese.text
    assert re.sub("[?&]lang=(en|zh)|&amp;lang=en", "", _without_fields(back.text)) == re.sub(
        "[?&]lang=(en|zh)|&amp;lang=en", "", english.text
    )


def _switch(html: str) -> str:
    match = re.search(r'<p class="language"><a href="([^"]*)"', html)
    assert match is not None
    return unescape(match[1])


def _without_fields(html: str) -> str:
    return html.replace('<input type="hidden" name="lang" value="en">', "")


def test_the_switch_stays_within_a_list() -> None:
    """The page of the list and what is looked for are kept, but no format."""
    html = get(console_app(), "/nodes?q=gpu&after=gpu-a&format=html&table=x").text

    assert _switch(html) == "?q=gpu&after=gpu-a&lang=zh"


def test_a_cache_is_told_that_the_browser_decides() -> None:
    for path in ("/", "/?lang=zh", "/nodes/none", "/decisions?after=%00"):
        assert get(console_app(), path).headers["vary"] == "Accept-Language"


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("name", PATHS)
def test_data_has_no_language(name: str, form: str) -> None:
    """A program gets the same whatever its headers and its address name."""
    path = PATHS[name]
    joint = "&" if "?" in path else "?"
    plain = get(console_app(), f"{path}{joint}format={form}")
    chinese = get(console_app(), f"{path}{joint}format={form}&lang=zh", CHINESE)

    if plain.status == 200:
        assert chinese.body == plain.body
        assert not re.search("[\u4e00-\u9fff]", chinese.text)


@pytest.mark.parametrize("name", ["Pods", "refused", "Overview", "{count}", "any", "no"])
def test_a_name_that_is_a_word_of_ours_is_not_translated(name: str) -> None:
    """Nor is a template that a tenant wrote filled in."""
    rows = [replace(one, namespace=name, requester=name, node=name) for one in typical_rows()]
    store = FakeRecordStore(rows, typical_records(), typical_usage())
    app = Starlette(routes=page_routes(services_of(store)))
    html = get(app, "/decisions?lang=zh").text

    assert f"<bdi>{unescape(name)}/train-0</bdi>" in html
    assert f'<span class="note"><bdi>{name}</bdi></span>' in html or f"<bdi>{name}</bdi>" in html


def test_a_verdict_that_is_not_ours_stays_as_it_is() -> None:
    store = FakeRecordStore([row("p", "aaaaaaaaaa", PodOutcome.REFUSED, verdict="Pods")], [], ())
    html = get(Starlette(routes=page_routes(services_of(store))), "/decisions?lang=zh").text

    assert "<bdi>Pods</bdi>" in html


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_what_strangers_wrote_is_text_in_chinese_too(path: str) -> None:
    html = get(console_app("hostile"), f"{path}{'&' if '?' in path else '?'}lang=zh").text

    assert problems_of(html) == []
    assert "<script>alert" not in html
    assert "<img" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", html)


@pytest.mark.parametrize("text", [*HOSTILE, "zh-CN", "ZH", "zh&lang=xx", "zh#x"])
def test_a_language_that_is_none_of_ours_is_passed_over(text: str) -> None:
    """Neither an error nor a part of any link."""
    value = "".join(f"%{octet:02X}" for octet in text.encode())
    answer = get(console_app(), f"/pods?lang={value}", {"accept-language": text[:99]})

    assert answer.status == 200
    assert problems_of(answer.text) == []
    links = re.findall(r'<a href="([^"]*)"', answer.text)
    assert [one for one in links if "lang=" in one] == [_switch(answer.text)]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nodes/none", 404, "未找到"),
        ("/decisions/none", 404, "无权查看"),
        ("/decisions?after=x%00", 400, "请求无效"),
        ("/pods?format=xml", 400, "未知的格式"),
        ("/pods?format=csv&table=x", 404, "本页没有表格"),
    ],
)
def test_a_page_of_an_error_is_chinese(path: str, status: int, text: str) -> None:
    answer = get(console_app(), path, CHINESE)

    assert (answer.status, text in answer.text) == (status, True)
    words = {word for one in texts(answer.text) for word in english_words(one)}
    assert words <= {"csv", "json", "pods"}  # formats and the name of a table


def test_a_form_that_is_not_believed_is_answered_in_the_language_of_its_address() -> None:
    answer = post(console_app(), "/fit?lang=zh", b"manifest=x&csrf=wrong")

    assert (answer.status, "表单已过期" in answer.text) == (403, True)


def test_whoever_is_not_known_is_told_so_in_chinese() -> None:
    """And no value of the address stands on the page."""

    async def nobody(_request: Request) -> Viewer | None:
        return None

    app = Starlette(routes=page_routes(replace(services(), viewer=nobody)))
    answer = get(app, "/pods?ns=secret&lang=zh")

    assert (answer.status, "没有用户登录" in answer.text, "secret" in answer.text) == (
        401,
        True,
        False,
    )


def test_json_of_a_decision_is_english() -> None:
    """Its verdict and its words are those of its record."""
    found = json.loads(get(console_app(), "/decisions?format=json&lang=zh", CHINESE).text)

    assert {one["verdict"] for one in found["items"]} == {"rewritten", "refused", "untouched"}
    assert {one["outcome"] for one in found["items"]} >= {"running", "refused", "waiting"}
