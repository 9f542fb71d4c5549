"""What admission decides on: settings, one snapshot, a namespace."""

from collections.abc import Sequence

import msgspec

from allocator.catalog.vocabularies import VOCABULARIES, LostVocabulary, Vocabulary
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
from allocator.config.settings import Settings
from allocator.mig.geometry import Geometries
from allocator.model.gpu import Snapshot
from allocator.model.value import Value
from allocator.placement.choose import PlacementPolicy


class AdmissionContext(Value, frozen=True):
    """What a decision rests on besides the pod: settings, one snapshot, its namespace."""

    settings: Settings
    snapshot: Snapshot
    vocabularies: Sequence[Vocabulary] = VOCABULARIES
    lost: Sequence[LostVocabulary] = ()  # vocabularies that the settings name in vain
    host_paths: bool | None = None  # whether the namespace admits hostPath volumes; None: unknown
    namespace: NamespacePolicy = ANY_MODE
    high_priority: bool = False  # whether pods of the namespace may hold back others
    geometries: Geometries | None = None  # which sets of MIG instances an operator allows
    extender: bool = False  # whether schedulers can ask us where a pod fits

    @property
    def policy(self) -> PlacementPolicy:
        """Return the placement policy of the namespace."""
        settings = self.settings
        return PlacementPolicy(
            prefer=self.namespace.prefer or settings.prefer,
            geometries=self.geometries,
            fill_policies=settings.fill_policies,
        )


class AdmissionView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What decisions rest on at one moment, for one namespace.

    ``age`` is that of the snapshot, in seconds.
    """

    context: AdmissionContext
    settings_digest: str = ""
    age: float | None = None
