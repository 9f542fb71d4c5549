"""The page of reasons: what each means, an example, and HAMi's names for it."""

from typing import Final

from allocator.catalog.reason_texts import HAMI_NAMES, REASON_TEXTS
from allocator.model.decision import Reason
from console.languages.messages import message
from console.pages.parts.blocks import FactList, PageBlock, PageNote, PageQuestion, PageView
from console.pages.parts.cell import code, plain
from console.pages.parts.links import address

_INTRODUCTION: Final = message(
    "A refusal ends in a reason and a digest. The digest is the same for every "
    "retry, and finds the decision. A number in a remedy can be written into the "
    "pod as it stands."
)

# What each means is written where docs/reasons.md has it from; here it is a message too.
MEANINGS: Final = {
    reason: message(text.meaning.replace("`", "")) for reason, text in REASON_TEXTS.items()
}


def reasons_page(question: PageQuestion) -> PageView:
    """Return the page of reasons."""
    del question  # everybody is told the same
    blocks: list[PageBlock] = [PageNote(text=_INTRODUCTION)]
    blocks += [_reason(reason) for reason in REASON_TEXTS]
    return PageView(
        title=message("Reasons"), heading=message("Reasons"), blocks=tuple(blocks), refreshes=False
    )


def _reason(reason: Reason) -> FactList:
    text = REASON_TEXTS[reason]
    names = ", ".join(name for name, ours in HAMI_NAMES.items() if ours is reason)
    rows = [
        (message("It means"), (plain(MEANINGS[reason]),)),
        (message("Example"), (code(text.example),)),
        (
            message("Decisions"),
            (
                plain(
                    message("with {reason}", reason=reason),
                    href=address("/decisions", {"reason": reason}),
                ),
            ),
        ),
    ]
    if names:
        rows.append((message("In HAMi"), (code(names),)))
    return FactList(title=reason, name=reason, rows=tuple(rows))
