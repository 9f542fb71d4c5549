"""AdmissionContext of a namespace, from the inventory."""

from allocator.catalog.keys import HIGH_ALLOWED, HIGH_KEY
from allocator.cluster.inventory import Inventory
from allocator.config.namespace_policy import namespace_policy
from webhook.admission.context import AdmissionContext, AdmissionView


def view_of(inventory: Inventory, name: str, *, extender: bool = False) -> AdmissionView:
    """Return what a decision in namespace *name* rests on, now.

    *extender* says whether schedulers can ask us where a pod fits.
    """
    namespace = inventory.namespace(name)
    annotations = namespace.annotations if namespace is not None else {}
    context = AdmissionContext(
        settings=inventory.settings,
        snapshot=inventory.snapshot(),
        vocabularies=inventory.vocabularies,
        lost=inventory.lost,
        host_paths=None if namespace is None else namespace.allows_host_paths,
        namespace=namespace_policy(annotations),
        high_priority=annotations.get(HIGH_KEY) == HIGH_ALLOWED,
        geometries=inventory.device_config.geometries,
        extender=extender,
    )
    return AdmissionView(
        context=context, settings_digest=inventory.settings_digest, age=inventory.age()
    )
