"""What if: the request of a stored decision decided on the cluster and the settings of today."""

from collections.abc import Iterator
from dataclasses import dataclass

from allocator.audit.record import AdmissionRecord, AdmissionVerdict
from allocator.config.namespace_policy import NamespacePolicy
from allocator.replay.content import ReplayContentError
from allocator.replay.request_codec import decode_request
from allocator.report import feasibility_text
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.mode_rows import mode_row_lines
from allocator.report.terminal_lines import Line, Tone, row
from console.cluster.snapshot import ClusterView
from console.explain.fit import RequestFit, fit_of_request
from console.explain.why import snapshot_without
from console.languages.messages import message
from console.replay.outcome import NotReplayable


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What would become of the request now; nothing is reserved."""

    fit: RequestFit
    changed: bool  # admitted now and refused then, the other way round, or in another mode

    @property
    def verdict(self) -> FeasibilityVerdict:
        """Return whether it fits now."""
        return self.fit.outlook.verdict


def what_if(
    record: AdmissionRecord, site: ClusterView, *, policy: NamespacePolicy | None = None
) -> WhatIf | NotReplayable:
    """Decide about the request of *record* today.

    *policy* is what its namespace says of modes today; ``None``: what it said then.
    What the pod itself holds counts as free, and what admission chose is chosen again.
    """
    if not record.asked:
        return NotReplayable(message("its record keeps no request"))
    try:
        asked = decode_request(record.asked, site.configuration.vocabularies)
    except ReplayContentError as error:
        return NotReplayable(
            message("the cluster serves no such request today: {error}", error=str(error))
        )
    left = snapshot_without(record.pod_uid, site) if record.pod_uid else None
    fit = fit_of_request(asked.request, site, policy=policy or asked.namespace, left=left)
    return WhatIf(fit=fit, changed=_is_changed(record, fit))


def _is_changed(record: AdmissionRecord, fit: RequestFit) -> bool:
    refused = record.outcome is AdmissionVerdict.REFUSED
    if fit.choice is None or refused:
        return refused != (fit.choice is None)
    return record.mode != fit.choice.mode


def what_if_lines(answer: WhatIf) -> Iterator[Line]:
    """Yield the decision of today: the mode or the refusal, the GPUs, what is missing."""
    fit = answer.fit
    yield from row("asked", feasibility_text.request_text(fit.request))
    for finding in fit.findings:
        yield from row("refused", f"{finding} [{finding.reason}]", Tone.BAD)
    if fit.choice is not None:
        yield from feasibility_text.mode_lines(fit.choice)
    yield from mode_row_lines(fit.modes)
    refusal = "".join(map(str, fit.findings))
    mode = None if fit.choice is None else fit.choice.mode
    yield from feasibility_text.placement_lines(fit.outlook, given=mode, refusal=refusal)
    yield from feasibility_text.remedy_lines(fit.outlook, refusal=refusal)
