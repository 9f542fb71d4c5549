"""AdmissionContext: settings, snapshot, namespace."""

from collections.abc import Sequence

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.config.settings import Prefer, Settings
from allocator.mig.geometry import Geometries
from allocator.model.gpu import Snapshot
from allocator.model.value import Value
from allocator.placement.choose import PlacementPolicy


class AdmissionContext(Value, frozen=True):
    """The input of a decision besides the pod: settings, a snapshot, its namespace.

    ``host_paths`` says whether the namespace admits hostPath volumes; ``None`` is unknown.
    ``prefer`` is the namespace's own preference between modes, ``high_priority`` says whether its
    pods may hold back others, ``geometries`` how an operator allows GPUs to be cut.
    """

    settings: Settings
    snapshot: Snapshot
    vocabularies: Sequence[Vocabulary] = VOCABULARIES
    host_paths: bool | None = None
    prefer: Prefer | None = None
    high_priority: bool = False
    geometries: Geometries | None = None

    @property
    def terms(self) -> PlacementPolicy:
        """Return the placement policy of the namespace."""
        settings = self.settings
        return PlacementPolicy(
            prefer=self.prefer or settings.prefer,
            geometries=self.geometries,
            packings=settings.packings,
        )
