"""CEL conditions on workloads, for the API server.

Every optional field is guarded: an error in an expression refuses a request or skips a hook.
"""

from allocator.catalog.conditions import asks_for_vgpu


def makes_vgpu_pods() -> str:
    """Return the condition that a pod template of a workload asks for vGPU.

    Volcano's jobs have a template for each task, CronJobs have it in that of their Jobs. Where a
    part is missing, the condition is an error, and the API server skips the hook.
    """
    asking = asks_for_vgpu("t.spec")
    return (
        "(has(object.spec.tasks) ? dyn(object.spec.tasks.map(k, dyn(k.template))) :\n"
        "  has(object.spec.jobTemplate) ? dyn([object.spec.jobTemplate.spec.template]) :\n"
        "  dyn([object.spec.template]))\n"
        f"  .exists(t, {asking})"
    )


def changes_pods() -> str:
    """Return the condition that a workload is new or its spec changed.

    Controllers write annotations and finalizers, and nobody reads what they are warned of. The
    ``generation`` of a Deployment counts changes of its annotations, too.
    """
    return "request.operation == 'CREATE' || object.spec != oldObject.spec"
