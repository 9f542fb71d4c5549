"""XIDs: which of the driver's critical errors say something about a GPU, and for how long.

Most XIDs are a tenant's own bug: taking a GPU out of service for those would let any tenant do
that. Sources: "catalog" is NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, immediate
action for A100 to GB200); "plugin" is the list that NVIDIA's device plugin ignores
(k8s-device-plugin, internal/rm/health.go), as HAMi's and Volcano's do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from allocator.model.problem import Problem


class Verdict(StrEnum):
    """What an XID means for the GPU that reported it."""

    HARMLESS = "harmless"  # the application's fault, or for information
    UNTIL_QUIET = "until-quiet"  # unhealthy until it has not been seen for a while
    UNTIL_RESET = "until-reset"  # unhealthy until the GPU is reset or the node rebooted


@dataclass(frozen=True, slots=True)
class Xid:
    """One kind of critical error."""

    number: int
    title: str
    verdict: Verdict
    source: str  # of the verdict; see the module's docstring


_APPLICATION: Final = "catalog: RESTART_APP"
_IGNORED: Final = "catalog: IGNORE"
_RESET: Final = "catalog: RESET_GPU"
_NVLINK: Final = "catalog: WORKFLOW_NVLINK5_ERR, decoded from the kernel log only"
_NUMBERED: Final = (
    Xid(8, "GPU stopped processing", Verdict.HARMLESS, _APPLICATION),
    Xid(11, "invalid push buffer stream", Verdict.HARMLESS, _APPLICATION),
    Xid(13, "graphics engine exception", Verdict.HARMLESS, f"{_APPLICATION}; plugin"),
    Xid(25, "illegal push buffer stream", Verdict.HARMLESS, _APPLICATION),
    Xid(31, "memory page fault", Verdict.HARMLESS, f"{_APPLICATION}; plugin"),
    Xid(32, "corrupted push buffer stream", Verdict.HARMLESS, _APPLICATION),
    Xid(43, "GPU stopped processing", Verdict.HARMLESS, f"{_IGNORED}; plugin"),
    Xid(45, "preemptive cleanup after another error", Verdict.HARMLESS, "plugin"),
    Xid(46, "GPU stopped processing", Verdict.UNTIL_RESET, _RESET),
    Xid(48, "double bit ECC error", Verdict.UNTIL_RESET, "catalog: WORKFLOW_XID_48, alone a reset"),
    Xid(62, "internal micro-controller halt", Verdict.UNTIL_RESET, _RESET),
    Xid(63, "memory remapped", Verdict.HARMLESS, _IGNORED),
    Xid(64, "memory remapping failed", Verdict.UNTIL_RESET, _RESET),
    Xid(66, "illegal access by a driver", Verdict.HARMLESS, _IGNORED),
    Xid(67, "illegal access by a driver", Verdict.HARMLESS, _IGNORED),
    Xid(68, "video processor exception", Verdict.HARMLESS, f"{_APPLICATION}; plugin"),
    Xid(69, "graphics engine class error", Verdict.HARMLESS, _APPLICATION),
    Xid(74, "NVLink error", Verdict.UNTIL_QUIET, "catalog: WORKFLOW_NVLINK_ERR"),
    Xid(79, "GPU has fallen off the bus", Verdict.UNTIL_RESET, "catalog: RESTART_BM"),
    Xid(80, "corrupted push buffer stream", Verdict.HARMLESS, _APPLICATION),
    Xid(92, "high rate of single bit ECC errors", Verdict.HARMLESS, _IGNORED),
    Xid(93, "InfoROM worn out", Verdict.HARMLESS, _IGNORED),
    Xid(94, "contained memory error", Verdict.HARMLESS, _APPLICATION),
    Xid(95, "uncontained memory error", Verdict.UNTIL_RESET, _RESET),
    Xid(108, "NVLink translation error", Verdict.HARMLESS, _IGNORED),
    # the catalogue wants a reset, but an endless kernel of a tenant is enough for this one
    Xid(109, "context switch timeout", Verdict.HARMLESS, "plugin; catalog: RESET_GPU"),
    Xid(110, "security fault", Verdict.UNTIL_RESET, _RESET),
    Xid(119, "GSP firmware does not answer", Verdict.UNTIL_RESET, _RESET),
    Xid(120, "GSP firmware error", Verdict.UNTIL_RESET, _RESET),
    Xid(121, "C2C link corrected", Verdict.HARMLESS, _IGNORED),
    Xid(136, "NVLink training failed", Verdict.UNTIL_RESET, _RESET),
    Xid(137, "NVLink privilege error", Verdict.HARMLESS, _IGNORED),
    Xid(140, "unrecovered ECC error", Verdict.UNTIL_RESET, _RESET),
    Xid(141, "fast path error", Verdict.HARMLESS, _IGNORED),
    Xid(143, "GPU initialization failed", Verdict.UNTIL_RESET, _RESET),
    Xid(151, "key rotation error", Verdict.UNTIL_RESET, "catalog: RESTART_VM"),
    Xid(
        154,
        "recovery action changed",
        Verdict.UNTIL_QUIET,
        "catalog: what to do is in the log only",
    ),
    Xid(155, "NVLink error", Verdict.UNTIL_RESET, _RESET),
    Xid(156, "resource retired", Verdict.UNTIL_RESET, _RESET),
    Xid(157, "resource could not be retired", Verdict.HARMLESS, _IGNORED),
    Xid(158, "fatal timeout", Verdict.UNTIL_RESET, _RESET),
    Xid(160, "memory channel retired", Verdict.HARMLESS, _IGNORED),
    Xid(161, "memory channel could not be retired", Verdict.HARMLESS, _IGNORED),
)
# Families: one number for each engine of a kind.
_FAMILIES: Final = (
    ((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), "copy engine exception"),
    ((83, 84, 88, 89, 96, 97, 98), "video decoder exception"),
    ((82, *range(99, 106)), "JPEG engine exception"),
    ((86, 139), "optical flow engine exception"),
)
_LINKS: Final = range(144, 151)
XIDS: Final[Mapping[int, Xid]] = MappingProxyType(
    {xid.number: xid for xid in _NUMBERED}
    | {
        number: Xid(number, title, Verdict.HARMLESS, _APPLICATION)
        for numbers, title in _FAMILIES
        for number in numbers
    }
    | {number: Xid(number, "NVLink error", Verdict.UNTIL_QUIET, _NVLINK) for number in _LINKS}
)
_ALL: Final = ("all", "xids")


@dataclass(frozen=True, slots=True, kw_only=True)
class XidPolicy:
    """The table of XIDs with an operator's changes."""

    ignored: frozenset[int] = frozenset()  # harmless, whatever the table says
    heeded: frozenset[int] = frozenset()  # never harmless, even if ignored; at least until quiet
    all_ignored: bool = False  # ignore every number that is not heeded
    all_heeded: bool = False  # heed every number, whatever is ignored

    def verdict(self, number: int) -> Verdict:
        """Return what *number* means; a number that is not listed is UNTIL_QUIET."""
        known = XIDS.get(number)
        verdict = known.verdict if known else Verdict.UNTIL_QUIET
        if self.all_heeded or number in self.heeded:
            return Verdict.UNTIL_QUIET if verdict is Verdict.HARMLESS else verdict
        if self.all_ignored or number in self.ignored:
            return Verdict.HARMLESS
        return verdict


def title_of(number: int) -> str:
    """Return an XID with its title, as ``Xid 79 (GPU has fallen off the bus)``."""
    known = XIDS.get(number)
    return f"Xid {number} ({known.title})" if known else f"Xid {number}"


def xid_policy(ignored: str, heeded: str) -> XidPolicy | Problem:
    """Parse an operator's two lists of numbers, separated by commas; each may be ``all``.

    The grammar is that of DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS, which the plugins
    of NVIDIA, HAMi and Volcano read; anything but a number is refused here, not skipped. Where both
    are ``all``, every XID is heeded, as in NVIDIA's plugin.
    """
    passed, raised = _words(ignored), _words(heeded)
    for path, listed in (("ignored", passed), ("heeded", raised)):
        for word in sorted(listed.difference(_ALL)):
            if not (word.isascii() and word.isdecimal()):
                accepted = "XID numbers separated by commas"
                return Problem(
                    path=f"xids.{path}", what=f"{word!r} is not an XID", accepted=accepted
                )
    return XidPolicy(
        ignored=frozenset(map(int, passed.difference(_ALL))),
        heeded=frozenset(map(int, raised.difference(_ALL))),
        all_ignored=not passed.isdisjoint(_ALL),
        all_heeded=not raised.isdisjoint(_ALL),
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip())
