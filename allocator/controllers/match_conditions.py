"""Says which resources of the cluster the API server does not send us pods for.

The conditions of our webhooks and policies are generated from the catalogue. A site that renames
resources in its device-config must write the new names into them; otherwise pods that ask by those
alone pass unseen, and see every GPU, or are refused as if they asked for none.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import structlog

from allocator.catalog.vocabularies import OWN, Vocabulary
from allocator.model.untrusted import escaped
from kube.client import ApiClient
from kube.errors import NotFoundError
from kube.events import Event, Reference, Severity

SWEEP_SECONDS: Final = 10.0  # between sweeps; somebody may be mending it
GROUP: Final = "admissionregistration.k8s.io/v1"
# What names resources, by where it is in the group.
CHECKED: Final = {
    "mutatingwebhookconfigurations/vgpu-admission": "MutatingWebhookConfiguration",
    "validatingwebhookconfigurations/vgpu-admission": "ValidatingWebhookConfiguration",
    f"validatingadmissionpolicies/hidden.{OWN.rstrip('/')}": "ValidatingAdmissionPolicy",
    f"validatingadmissionpolicies/unlabelled.{OWN.rstrip('/')}": "ValidatingAdmissionPolicy",
}
MOST_NAMES: Final = 4  # in one Event
_PREFIX: Final = re.compile(r"\br[.]startsWith\('([^']*)'\)")
_EQUAL: Final = re.compile(r"\br == '([^']*)'")
log = structlog.get_logger(__name__)


class MatchCondition(msgspec.Struct, frozen=True):
    """A condition under which the API server calls a webhook."""

    expression: str = ""


class ConditionedWebhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook of a configuration."""

    name: str = ""
    match_conditions: tuple[MatchCondition, ...] | None = None


class PolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """The expressions of a policy that may name resources."""

    match_conditions: tuple[MatchCondition, ...] | None = None
    variables: tuple[MatchCondition, ...] | None = None
    validations: tuple[MatchCondition, ...] | None = None


class ConditionedWebhooks(msgspec.Struct, frozen=True):
    """A webhook configuration or a policy, as far as it matters here."""

    webhooks: tuple[ConditionedWebhook, ...] | None = None
    spec: PolicySpec | None = None

    def conditions(self, own: str) -> Iterator[tuple[str, MatchCondition]]:
        """Yield each condition with the webhook that it is of; *own* is the name of a policy."""
        for webhook in self.webhooks or ():
            for condition in webhook.match_conditions or ():
                yield webhook.name, condition
        spec = self.spec or PolicySpec()
        for part in (spec.match_conditions, spec.variables, spec.validations):
            for condition in part or ():
                yield own, condition


_DECODER: Final = msgspec.json.Decoder(ConditionedWebhooks)


def unnamed_resources(
    found: ConditionedWebhooks, names: Iterable[str], *, own: str = ""
) -> dict[str, list[str]]:
    """Return which of *names* the conditions of each webhook, or of the policy *own*, leave out.

    Conditions are those that the generator writes. One that names no resource says nothing of them.
    """
    wanted = sorted(set(names))
    left_out: dict[str, list[str]] = {}
    for name, condition in found.conditions(own):
        prefixes = tuple(_resource_texts(_PREFIX, condition))
        equal = frozenset(_resource_texts(_EQUAL, condition))
        missing = [n for n in wanted if n not in equal and not n.startswith(prefixes)]
        if missing and (prefixes or equal):
            left_out[name] = missing
    return left_out


def _resource_texts(pattern: re.Pattern[str], condition: MatchCondition) -> list[str]:
    """Return the texts in *condition* that are resource names or begin them."""
    return [text for text in pattern.findall(condition.expression) if "/" in text]


class MatchConditionsController:
    """Compares the conditions of our webhooks with the resources that the cluster configures."""

    def __init__(
        self,
        client: ApiClient,
        *,
        vocabularies: Callable[[], Sequence[Vocabulary]],
        record: Callable[[Event], None],
    ) -> None:
        """Read through *client*, record Events with *record*."""
        self._client = client
        self._vocabularies = vocabularies
        self._record = record
        self._logged: dict[str, dict[str, list[str]]] = {}  # by place, so that a change is logged

    async def sweep(self) -> None:
        """Report what the conditions leave out; raises :class:`kube.errors.KubeError`."""
        names = [name for vocabulary in self._vocabularies() for name in vocabulary.resources]
        for place, kind in CHECKED.items():
            try:
                body = await self._client.get(f"/apis/{GROUP}/{place}")
            except NotFoundError:
                continue  # a site may call it otherwise
            about = Reference(api_version=GROUP, kind=kind, name=place.rpartition("/")[2])
            left_out = unnamed_resources(_DECODER.decode(body), names, own=about.name)
            if left_out:
                self._record(_event(about, left_out))
            if left_out != self._logged.get(place, {}):
                log.warning("match conditions", configuration=place, left_out=left_out)
            self._logged[place] = left_out


def _event(about: Reference, left_out: dict[str, list[str]]) -> Event:
    missing = sorted({name for names in left_out.values() for name in names})
    shown = ", ".join(escaped(name) for name in missing[:MOST_NAMES])
    more = f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
    hooks = ", ".join(escaped(name) for name in list(left_out)[:MOST_NAMES])
    return Event(
        regarding=about,
        severity=Severity.WARNING,
        reason="VgpuResourceNotMatched",
        action="Check",
        note=f"the conditions of {hooks} do not name {shown}{more}: pods that ask by such a "
        "resource alone pass unseen, or count as asking for none. Add "
        f"r == '{escaped(missing[0])}' || before r.startsWith "
        "in each of them, likewise for the others (docs/agent.md)",
    )
