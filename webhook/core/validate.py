"""Validation: whether the pod about to be stored still is what admission decided.

Mutating hooks run one after another and a later one may undo or add to what we wrote, so the
last word is spoken here, where the object no longer changes.
"""

from msgspec.structs import replace

from allocator.model.decision import Finding, Reason
from webhook.core.mutate import AdmissionContext, decide
from webhook.core.outcome import Outcome, Refused, Rewritten, Untouched
from webhook.core.patch import operations
from webhook.core.podwire import Pod


def confirm(pod: Pod, around: AdmissionContext) -> Outcome:
    """Refuse a pod whose injection is incomplete or was tampered with.

    Volumes are not required, only tolerated: a namespace's Pod Security level may have changed
    since the mutating pass, and the agent's answer serves in either case.
    """
    outcome = decide(pod, replace(around, host_paths=False))
    if not isinstance(outcome, Rewritten):
        return outcome if isinstance(outcome, Refused) else Untouched()
    missing = operations(pod, outcome.intent)
    if not missing:
        return outcome
    finding = Finding(
        reason=Reason.INCOMPLETE,
        place="pod",
        field=missing[0]["path"],
        what=f"its vGPU injection is incomplete at {missing[0]['path'][:128]}",
        remedy="let no later webhook remove what vgpu-admission adds, then create it again",
    )
    return Refused(first=finding, digest=outcome.digest)
