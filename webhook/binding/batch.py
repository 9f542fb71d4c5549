"""Batches: decisions about pods that are bound to one node at the same time.

Each pod sees what the ones before it get, so that all of them can be committed in one write.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from allocator.families.registry import family_of
from allocator.ledger.assign import NoFit, assign
from allocator.ledger.commit import is_full, readback_problems, with_entry
from allocator.ledger.ledger import Ledger
from allocator.ledger.schema import MOST_ENTRIES
from allocator.model.allocation import Assignment, Entry
from allocator.model.decision import Reason
from allocator.model.untrusted import quote
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_annotations import Commit
from webhook.binding.decide import (
    BindRequest,
    Denied,
    ServedUpstream,
    bind_inputs,
    conflict,
    entry_of,
    forbidden,
    no_fit_denial,
)
from webhook.review.admission_review import Refusal

Outcome = Commit | Refusal | Denied | ServedUpstream


def decide_batch(
    ledger: Ledger, binds: Sequence[tuple[BindRequest, AdmissionContext]], now: datetime
) -> list[Commit | Denied]:
    """Decide about *binds* of different pods, one after another."""
    results: list[Commit | Denied] = []
    for bind, context in binds:
        demand = context.snapshot.demand
        assigned = assign(ledger, bind.wanted, policy=context.policy, demand=demand)
        if isinstance(assigned, NoFit):
            # Of a closed node nothing but that it is closed decided.
            inputs = None if ledger.closed else bind_inputs(bind, context, ledger)
            results.append(no_fit_denial(bind, assigned, ledger, inputs=inputs))
            continue
        entry = entry_of(bind, assigned, now, earlier=ledger.entry(bind.live.uid))
        if (why := _unwritable_denial(ledger, entry)) is not None:
            results.append(why)
            continue
        results.append(_promise(bind, context, assigned, entry=entry, ledger=ledger))
        ledger = with_entry(ledger, entry)
    return results


def _unwritable_denial(ledger: Ledger, entry: Entry) -> Denied | None:
    """Refuse an entry that could not be read back: an unreadable entry closes the node."""
    node = quote(ledger.name)
    if is_full(ledger, entry.uid):
        most = f"node {node}: its ledger is full with {MOST_ENTRIES} entries"
        text = f"{most}; wait until other pods end [{Reason.SHARES_SHORT}]"
        return Denied(conflict(text), Reason.SHARES_SHORT)
    problems = readback_problems(ledger, entry)
    if not problems:
        return None
    text = f"node {node}: its GPUNode cannot hold the entry: {problems[0]} [{Reason.TOO_MANY}]"
    return Denied(forbidden(text), Reason.TOO_MANY)


def _promise(
    bind: BindRequest,
    context: AdmissionContext,
    assignment: Assignment,
    *,
    entry: Entry,
    ledger: Ledger,
) -> Commit:
    return Commit(
        bind=bind,
        assignment=assignment,
        entry=entry,
        inputs=bind_inputs(bind, context, ledger),
        served_by=family_of(bind.wanted.request).served_by(context.settings),
        told_to_hami=context.settings.hami_register,
    )


def decision_labels(outcome: Outcome) -> tuple[str, str]:
    """Return the decision and the code of its reason, as metrics count them."""
    match outcome:
        case Commit():
            return "promised", ""
        case ServedUpstream():
            return "elsewhere", ""
        case Denied(reason=reason):
            return "refused", reason
        case Refusal(reason=status):
            return "refused", status
        case _:
            assert_never(outcome)
