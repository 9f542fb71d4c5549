"""Answers to reviews of workloads: all may pass, and whoever applies one is warned."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from webhook.admission.context import AdmissionContext
from webhook.review.admission_review import BadObjectError, allow
from webhook.review.workload_schema import object_text, parse
from webhook.workload.warnings import workload_warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadHandler:
    """What one review of a workload needs.

    ``context_of`` returns what decisions in a namespace rest on. ``count_review`` counts a result:
    ``warned``, ``silent`` or ``error``. ``observe_seconds`` takes the time of one answer.
    """

    context_of: Callable[[str], AdmissionContext]
    count_review: Callable[[str], None]
    observe_seconds: Callable[[float], None]
    ticks: Callable[[], float] = time.perf_counter

    def warn(self, body: bytes) -> bytes:
        """Allow a workload, with warnings where its pods will be refused or warned of.

        Nothing is recorded, so that a dry run is no different. Raises :class:`NotAReviewError`
        where there is no uid to answer to; an object that cannot be read is allowed as it is.
        """
        started = self.ticks()
        try:
            request = parse(body)
            text = object_text(request)
        except BadObjectError as error:
            self.count_review("error")
            return allow(error.uid)
        lines = workload_warnings(text, request.namespace, self.context_of(request.namespace))
        self.count_review("warned" if lines else "silent")
        self.observe_seconds(self.ticks() - started)
        return allow(request.uid, warnings=lines)
