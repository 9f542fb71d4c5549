"""Answers to reviews of workloads: all may pass, and whoever applies one is warned."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from allocator.audit.record_source import UNNAMED, RecordSource
from allocator.audit.record_writer import RecordSink
from webhook.admission.context import AdmissionContext
from webhook.review.admission_review import BadObjectError, allow
from webhook.review.workload_schema import object_text, parse
from webhook.workload.audit_record import record, workload_object
from webhook.workload.warnings import workload_warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadHandler:
    """What one review of a workload needs.

    ``context_of`` returns what decisions in a namespace rest on. ``count_review`` counts a result:
    ``warned``, ``silent`` or ``error``. ``observe_seconds`` takes the time of one answer.
    ``journal`` takes who created or changed what, for the pods that come of it.
    """

    context_of: Callable[[str], AdmissionContext]
    count_review: Callable[[str], None]
    observe_seconds: Callable[[float], None]
    journal: RecordSink | None = None  # None: nothing is recorded
    source: RecordSource = UNNAMED
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ticks: Callable[[], float] = time.perf_counter

    def warn(self, body: bytes) -> bytes:
        """Allow a workload, with warnings where its pods will be refused or warned of.

        A dry run is answered alike and not recorded. What a controller made is not warned of,
        because nobody would read it. Raises :class:`NotAReviewError` where there is no uid to
        answer to; an object that cannot be read is allowed as it is.
        """
        started = self.ticks()
        try:
            request = parse(body)
            text = object_text(request)
        except BadObjectError as error:
            self.count_review("error")
            return allow(error.uid)
        found, lines = workload_object(request), list[str]()
        if found is None or not found.is_controlled:
            lines = workload_warnings(text, request.namespace, self.context_of(request.namespace))
        if found is not None and self.journal is not None and not request.dry_run:
            stamp = self.source.stamp(self.now())
            self.journal.remember(record(request, found, stamp=stamp, warnings=lines))
        self.count_review("warned" if lines else "silent")
        self.observe_seconds(self.ticks() - started)
        return allow(request.uid, warnings=lines)
