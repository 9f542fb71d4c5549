"""What a container is given, as records name it."""

from collections.abc import Iterable
from typing import Any, Final

from allocator.model.allocation import ContainerGrants, Grant
from allocator.model.untrusted import escaped

MOST_CONTAINERS: Final = 64


def given_fields(containers: Iterable[ContainerGrants]) -> list[dict[str, Any]]:
    """Return the fields of a ``GivenPart`` for each of *containers*, of the first 64."""
    first = [container for container, _ in zip(containers, range(MOST_CONTAINERS), strict=False)]
    return [
        {
            "name": escaped(container.name),
            "devices": [device_fields(grant) for grant in container.grants],
        }
        for container in first
    ]


def device_fields(grant: Grant) -> dict[str, Any]:
    """Return the fields of a ``DevicePart`` for *grant*."""
    fields: dict[str, Any] = {
        "gpu": escaped(grant.gpu),
        "mode": str(grant.mode),
        "memory_mib": grant.memory,
        "cores_percent": grant.cores,
    }
    if grant.placed is not None:
        fields["profile"] = escaped(grant.placed.profile.name)
        fields["start"] = grant.placed.start
    return fields
