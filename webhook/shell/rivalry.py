"""Rivalry: what a contest between gangs is judged by, from the caches that answer binds too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from allocator.core.choose import Terms
from allocator.core.commitment import Wanted
from allocator.core.contest import Contest
from allocator.core.index import Index
from allocator.core.podfacts import Seen
from webhook.core.mutate import Surroundings
from webhook.core.unbound import wants
from webhook.shell.pending import Pending

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """``index`` returns what is known now, ``around`` the surroundings of a namespace."""

    index: Callable[[], Index]
    pending: Pending
    around: Callable[[str], Surroundings]

    def __call__(self) -> Contest:
        """Return what is held and wanted now."""
        return Contest(index=self.index(), wanted=self._wanted, terms=self._terms)

    def _wanted(self, pod: Seen) -> Wanted | None:
        try:
            live = self.pending.pod(pod.namespace, pod.name)
            if live is None or live.uid != pod.uid:
                return None
            found = wants(live.pod, self.around(pod.namespace).vocabularies)
        except _UNREADABLE:  # a tenant's words end no duty
            return None
        return found if isinstance(found, Wanted) else None

    def _terms(self, namespace: str) -> Terms:
        return self.around(namespace).terms
