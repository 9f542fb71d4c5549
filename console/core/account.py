"""Accounts: what an agent says of its node that people read and no decision goes by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAccount:
    """``driver`` is its version, ``reasons`` say by GPU why it is not used; both may be empty."""

    driver: str = ""
    reasons: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NONE_GIVEN = DriverAccount()


def account_of(document: Mapping[str, Any]) -> DriverAccount:
    """Read the account in a GPUNode that was parsed from JSON; what is odd about it is left out."""
    status = document.get("status")
    if not isinstance(status, Mapping):
        return NONE_GIVEN
    driver, gpus = status.get("driver"), status.get("gpus")
    told = [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    pairs = ((gpu.get("uuid"), gpu.get("reason")) for gpu in told)
    return DriverAccount(
        driver=driver if isinstance(driver, str) else "",
        reasons={
            uuid: reason
            for uuid, reason in pairs
            if isinstance(uuid, str) and uuid and isinstance(reason, str) and reason
        },
    )
