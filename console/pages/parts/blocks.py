"""Blocks: what pages are made of, as values that templates only write down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

from allocator.report.terminal_lines import Tone
from console.access.viewer import Viewer
from console.languages.choice import BROWSERS_ENGLISH, KEY, Language, LanguageChoice
from console.languages.messages import PageMessage, message
from console.pages.parts.cell import TableCell
from console.pages.parts.links import address

_NOTHING: Final = message("Nothing.")
STATE_KEYS: Final = ("format", "table", "after", KEY)  # of the answer, not of what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """What is asked of a page: its path, the values of its address, who asks, and when."""

    path: str
    values: Mapping[str, str] = field(default_factory=dict)
    viewer: Viewer
    now: datetime
    language: LanguageChoice = BROWSERS_ENGLISH

    def value(self, key: str) -> str:
        """Return a value without blanks around it; empty where it is absent."""
        return self.values.get(key, "").strip()

    def in_language(self, language: Language) -> str:
        """Return the address of this page in another language, also of a later part of a list.

        It has no path, and so repeats no name of the one at which the page is.
        """
        kept = {key: value for key, value in self.values.items() if key not in ("format", "table")}
        return address("", {**kept, KEY: language})

    def with_values(self, **changes: str) -> str:
        """Return the address of this page with other values; empty ones are left out."""
        kept = {key: value for key, value in self.values.items() if key not in STATE_KEYS}
        return address(self.path, {**kept, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column; ``key`` is its name in JSON and CSV."""

    key: str
    title: PageMessage
    numeric: bool = False
    wide: bool = False  # holds sentences, or amounts with their units


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table with a caption; the first cell of a row is its heading."""

    kind: ClassVar[str] = "table"
    name: str  # unique on its page
    caption: PageMessage
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    empty: PageMessage = _NOTHING  # in place of rows: why there are none, and what would make one
    command: str = ""  # that would
    more: str = ""  # address of the next page
    note: str = ""
    folded: bool = False  # shown once somebody opens it
    exports: tuple[tuple[str, str], ...] = ()  # format and address


@dataclass(frozen=True, slots=True, kw_only=True)
class FactList:
    """Names with one or several values each."""

    kind: ClassVar[str] = "facts"
    title: str
    rows: tuple[tuple[str, tuple[TableCell, ...]], ...]
    name: str = ""  # of the anchor
    short: bool = False  # side by side where there is room


@dataclass(frozen=True, slots=True, kw_only=True)
class PageNote:
    """A paragraph; a command is shown with a button that copies it."""

    kind: ClassVar[str] = "note"
    text: str
    tone: Tone = Tone.PLAIN
    title: str = ""
    command: str = ""
    links: tuple[tuple[str, str], ...] = ()  # text and address


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEvent:
    """One thing that happened."""

    when: TableCell
    what: str
    text: str = ""
    tone: Tone = Tone.PLAIN
    mark: str = ""
    source: str = ""  # who wrote it, and how the sender was authenticated


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeLine:
    """What happened to a pod, the earliest first."""

    kind: ClassVar[str] = "life"
    title: PageMessage
    events: tuple[LifeEvent, ...]
    empty: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacet:
    """One field with its values, their counts, and the addresses that choose them."""

    title: PageMessage
    choices: tuple[tuple[str, int, str, bool], ...]  # text, count, address, chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetList:
    """Fields by which a list is narrowed; ``chosen`` are texts, and the addresses without them."""

    kind: ClassVar[str] = "facets"
    facets: tuple[PageFacet, ...]
    chosen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One input of a form."""

    name: str
    label: PageMessage
    value: str = ""
    hint: str = ""
    problem: str = ""
    choices: tuple[tuple[str, str], ...] = ()  # value and text; none: a free text
    lines: int = 0  # of a text of several lines
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageForm:
    """A form: it asks by its address, or posts, with the token of its viewer."""

    kind: ClassVar[str] = "form"
    name: str
    title: PageMessage
    action: str
    fields: tuple[FormField, ...]
    submit: PageMessage
    posts: bool = False
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBox:
    """A box of a drawing, in its units."""

    x: float
    width: float
    text: str
    state: str  # busy | idle | free | foreign | other
    label: str  # for those who do not see it


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Boxes in a row: the slots of a GPU, or the parts of an amount."""

    kind: ClassVar[str] = "drawing"
    title: PageMessage
    label: PageMessage
    boxes: tuple[DrawnBox, ...]
    ticks: tuple[tuple[float, str], ...] = ()
    width: float = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLine:
    """One series of a chart: its points in the units of the chart."""

    name: str
    points: str  # of an SVG polyline
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChart:
    """Amounts over time as lines; a table beside it has the same."""

    kind: ClassVar[str] = "chart"
    title: PageMessage
    label: PageMessage
    lines: tuple[DrawnLine, ...]
    top: str  # the amount at its upper edge
    width: float = 400
    height: float = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeading:
    """A heading between blocks; ``name`` is its anchor."""

    kind: ClassVar[str] = "heading"
    title: str
    name: str
    tone: Tone = Tone.PLAIN
    word: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Text of several lines as it is: JSON, YAML, or a comparison."""

    kind: ClassVar[str] = "text"
    title: str
    lines: tuple[tuple[str, str], ...]  # "", "old" or "new", and the line
    name: str = ""  # of the anchor


PageBlock = (
    PageTable
    | FactList
    | PageNote
    | LifeLine
    | FacetList
    | PageForm
    | Drawing
    | PageChart
    | PageHeading
    | TextBlock
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """A page; ``document`` is its JSON where that is no table."""

    title: PageMessage  # of the browser's window
    heading: PageMessage
    blocks: tuple[PageBlock, ...]
    word: TableCell | None = None  # beside the heading
    document: Mapping[str, object] | None = None
    as_of: datetime | None = None  # of the figures, where they are those of now
    status: int = 200  # of HTTP
    refreshes: bool = True
    json: str = ""  # address of the document

    @property
    def tables(self) -> tuple[PageTable, ...]:
        """Return its tables."""
        return tuple(block for block in self.blocks if isinstance(block, PageTable))
