"""What every page must be: one heading, names for all inputs, unique ids, nothing inline."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})
CLOSES_ITSELF = frozenset({"p", "li", "dt", "dd", "option"})
INPUTS = frozenset({"input", "select", "textarea"})
ELEMENTS = frozenset(
    (
        *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main"),
        *("footer", "section", "div", "h1", "h2", "p", "ul", "ol", "li", "a", "span", "strong"),
        *("time", "bdi", "code", "pre", "ins", "del", "form", "label", "input", "select"),
        *("option", "textarea", "button", "table", "caption", "thead", "tbody", "tr", "th", "td"),
        *(
            "dl",
            "dt",
            "dd",
            "figure",
            "figcaption",
            "svg",
            "line",
            "details",
            "summary",
            "g",
            "rect",
            "text",
            "polyline",
        ),
    )
)


@dataclass(slots=True)
class Element:
    """An element with its attributes and its text."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    parents: tuple[str, ...] = ()


@dataclass(slots=True)
class Page(HTMLParser):
    """A page as a list of its elements; everything must be closed in order."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.errors.append(f"<{tag}> repeats an attribute")
        element = Element(tag, dict(attrs), parents=tuple(e.tag for e in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].tag != tag:
            inside = self.open[-1].tag if self.open else "nothing"
            self.errors.append(f"</{tag}> inside {inside}, line {self.getpos()[0]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data


def parse_page(html: str) -> Page:
    """Return *html* as elements."""
    page = Page()
    page.feed(html)
    page.close()
    return page


def problems_of(html: str) -> list[str]:
    """Return what is wrong with a page."""
    return list(_problems(parse_page(html)))


def _problems(page: Page) -> Iterator[str]:
    yield from page.errors
    yield from (f"<{element.tag}> is never closed" for element in page.open)
    yield from (f"<{e.tag}> is not ours" for e in page.elements if e.tag not in ELEMENTS)
    headings = [element for element in page.elements if element.tag == "h1"]
    if len(headings) != 1 or not headings[0].text.strip():
        yield f"{len(headings)} h1"
    ids = Counter(e.attributes["id"] for e in page.elements if "id" in e.attributes)
    yield from (
        f"id {name!r} is not unique, or empty" for name, n in ids.items() if n > 1 or not name
    )
    labels = {e.attributes.get("for") for e in page.elements if e.tag == "label"}
    for element in page.elements:
        yield from _element_problems(element, labels, set(ids))


def _element_problems(
    element: Element, labels: set[str | None], ids: set[str | None]
) -> Iterator[str]:
    tag, attributes = element.tag, element.attributes
    if tag in INPUTS and attributes.get("type") != "hidden" and attributes.get("id") not in labels:
        yield f"<{tag} name={attributes.get('name')}> has no label"
    if tag == "th" and "scope" not in attributes:
        yield "<th> without scope"
    for name in ("aria-labelledby", "aria-describedby"):
        if name in attributes and attributes[name] not in ids:
            yield f"{name} names {attributes[name]!r}, which is not there"
    if tag in NAMED_BY_TEXT and not element.text.strip():
        yield f"<{tag}> without a text"
    yield from _inline_problems(element)


NAMED_BY_TEXT = frozenset({"a", "button", "caption", "label", "title"})


def _inline_problems(element: Element) -> Iterator[str]:
    """Yield what the content policy would block, or what would lead to another host."""
    tag, attributes = element.tag, element.attributes
    if "style" in attributes or tag == "style":
        yield f"inline style on <{tag}>"
    if tag == "script" and (element.text.strip() or not attributes.get("src")):
        yield "inline script"
    yield from (f"handler {name} on <{tag}>" for name in attributes if name.startswith("on"))
    for name in ("href", "src", "action"):
        target = attributes.get(name)
        if target is not None and (
            not target.startswith(("/", "#", "?")) or target.startswith("//")
        ):
            yield f"{name} {target!r} leads away"
