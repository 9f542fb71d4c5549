"""The page of reasons: what each means, an example, and HAMi's names for it."""

from typing import Final

from allocator.catalog.reason_texts import HAMI_NAMES, REASON_TEXTS
from allocator.model.decision import Reason
from console.pages.parts.blocks import FactList, PageBlock, PageNote, PageQuestion, PageView
from console.pages.parts.cell import code, plain
from console.pages.parts.links import address

_INTRODUCTION: Final = (
    "A refusal ends in a reason and a digest. The digest is the same for every retry, and finds"
    " the decision. A number in a remedy can be written into the pod as it stands."
)


def reasons_page(question: PageQuestion) -> PageView:
    """Return the page of reasons."""
    del question  # everybody is told the same
    blocks: list[PageBlock] = [PageNote(text=_INTRODUCTION)]
    blocks += [_reason(reason) for reason in REASON_TEXTS]
    return PageView(title="Reasons", heading="Reasons", blocks=tuple(blocks), refreshes=False)


def _reason(reason: Reason) -> FactList:
    text = REASON_TEXTS[reason]
    names = ", ".join(name for name, ours in HAMI_NAMES.items() if ours is reason)
    rows = [
        ("It means", (plain(text.meaning.replace("`", "")),)),
        ("Example", (code(text.example),)),
        ("Decisions", (plain(f"with {reason}", href=address("/decisions", {"reason": reason})),)),
    ]
    if names:
        rows.append(("In HAMi", (code(names),)))
    return FactList(title=reason, name=reason, rows=tuple(rows))
