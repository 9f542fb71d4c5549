"""Serving: what one node has for the pods that are bound to it at the same time, and what is said.

Each pod sees what the ones before it get, so that all of them can be committed in one write.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from allocator.core.bounds import full, unkept
from allocator.core.commitment import Unfit, assigned
from allocator.core.gpunodewire import MOST_ENTRIES
from allocator.core.ledger import Ledger, node_for, promising
from allocator.core.wording import quoted
from allocator.model.decision import Assignment, Reason
from allocator.model.ledger import Entry
from webhook.core.binding import Denied, Elsewhere, Wish, conflict, entry_of, forbidden, unfit
from webhook.core.bound import Promise
from webhook.core.mutate import Surroundings
from webhook.core.review import Refusal

Outcome = Promise | Refusal | Denied | Elsewhere


def served(
    ledger: Ledger, wishes: Sequence[tuple[Wish, Surroundings]], now: datetime
) -> list[Promise | Denied]:
    """Decide about *wishes* of different pods, one after another."""
    results: list[Promise | Denied] = []
    for wish, around in wishes:
        demand = around.snapshot.demand
        found = assigned(ledger, wish.wanted, terms=around.terms, demand=demand)
        if isinstance(found, Unfit):
            results.append(unfit(wish, found))
            continue
        entry = entry_of(wish, found, now)
        if (why := _unwritable(ledger, entry)) is not None:
            results.append(why)
            continue
        results.append(_promise(wish, around, found, entry=entry, ledger=ledger))
        ledger = promising(ledger, entry)
    return results


def _unwritable(ledger: Ledger, entry: Entry) -> Denied | None:
    """Refuse a promise that could not be read back: it would shut the node for everybody."""
    node = quoted(ledger.name)
    if full(ledger, entry.uid):
        most = f"node {node}: it promises something to {MOST_ENTRIES} pods, and may to no more"
        text = f"{most}; wait until other pods end [{Reason.SHARES_SHORT}]"
        return Denied(conflict(text), Reason.SHARES_SHORT)
    odd = unkept(ledger, entry)
    if not odd:
        return None
    text = f"node {node}: its GPUNode cannot hold the promise: {odd[0]} [{Reason.TOO_MANY}]"
    return Denied(forbidden(text), Reason.TOO_MANY)


def _promise(
    wish: Wish, around: Surroundings, assignment: Assignment, *, entry: Entry, ledger: Ledger
) -> Promise:
    return Promise(
        wish=wish,
        assignment=assignment,
        entry=entry,
        node=node_for(ledger, entry.uid),
        version=f"{ledger.uid}/{ledger.generation}",
        served_by=around.settings.node_agent,
        vocabularies=around.vocabularies,
        demand=around.snapshot.demand,
    )


def counted(outcome: Outcome) -> tuple[str, str]:
    """Return the decision and the code of its reason, as metrics count them."""
    match outcome:
        case Promise():
            return "promised", ""
        case Elsewhere():
            return "elsewhere", ""
        case Denied(reason=reason):
            return "refused", reason
        case Refusal(reason=status):
            return "refused", status
        case _:
            assert_never(outcome)
