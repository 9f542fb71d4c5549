"""What Volcano's scheduler is shown of a GPU, case by case."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from allocator.ledger.registered_capacity import needs_report, registered_gpus
from allocator.model.allocation import ContainerGrants, Entry
from allocator.model.gpu import Gpu
from allocator.model.request import Mode, Stage
from allocator.model.units import MiB
from tests.builders.gpunodes import entry, held, several
from tests.builders.model import A100_40, T4, gpu, mig_grant, soft_grant

SOFT, CUT = gpu(T4), gpu(A100_40, mode=Mode.MIG)
NOW = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)


def shown(found: Gpu, *entries: Entry, counted: Sequence[str] = ()) -> tuple[int, int]:
    """Return slots and memory that one GPU is registered with."""
    (only,) = registered_gpus([found], entries, counted)
    return only.slots, only.memory


@pytest.mark.parametrize(
    ("found", "entries", "counted", "room"),
    [
        pytest.param(SOFT, [], "", (10, 15360), id="idle"),
        pytest.param(SOFT, [soft_grant(5000)], "a", (10, 15360), id="counts-it-itself"),
        pytest.param(SOFT, [soft_grant(5000)], "", (9, 10360), id="cannot-see-it"),
        pytest.param(SOFT, [soft_grant(5000, 100)], "", (0, 10360), id="exclusive-unseen"),
        pytest.param(SOFT, [soft_grant(9000)] * 2, "", (8, 0), id="more-than-there-is"),
        pytest.param(replace(SOFT, foreign=MiB(360)), [], "", (10, 15000), id="foreign"),
        pytest.param(replace(SOFT, healthy=False), [], "", (0, 15360), id="sick"),
        pytest.param(
            replace(SOFT, healthy=False), [soft_grant(1)], "a", (1, 15360), id="sick-with-tenant"
        ),
        pytest.param(CUT, [mig_grant("1g.5gb", 0)], "a", (9, 35672), id="instance-without-a-name"),
        pytest.param(
            CUT,
            [msgspec.structs.replace(mig_grant("1g.5gb", 0), position="group1-0")],
            "a",
            (10, 40536),
            id="instance-with-a-name",
        ),
    ],
)
def test_what_it_cannot_see_is_taken_off(
    *, found: Gpu, entries: Sequence[object], counted: str, room: tuple[int, int]
) -> None:
    """And nothing else: what it counts itself would be taken off twice."""
    promised = [entry(uid, grant) for uid, grant in zip("ab", entries, strict=False)]  # type: ignore[arg-type]  # grants

    assert shown(found, *promised, counted=counted) == room


def test_only_the_first_instance_of_a_pod_is_counted() -> None:
    """Its account knows a pod once on each GPU, and reads no further."""
    grants = [
        msgspec.structs.replace(mig_grant("1g.5gb", i), position=f"group1-{i}") for i in range(2)
    ]

    assert shown(CUT, entry("a", *grants), counted="a") == (9, 40536 - 4864)


@pytest.mark.parametrize(
    ("first", "room"),
    [
        pytest.param(held(Stage.INIT, soft_grant(3000)), (10, 15360), id="in-turn"),
        pytest.param(held(Stage.INIT, soft_grant(9000)), (10, 10360), id="first-more"),
        pytest.param(held(Stage.INIT, soft_grant(3000, 100)), (1, 15360), id="first-alone"),
        pytest.param(held(Stage.SIDECAR, soft_grant(3000)), (9, 12360), id="at-once"),
    ],
)
def test_only_apps_are_counted(first: ContainerGrants, room: tuple[int, int]) -> None:
    """A pod's list is of its apps, so what it holds beyond them is taken off."""
    one = several("a", first, held(Stage.APP, soft_grant(4000, 30)))

    assert shown(SOFT, one, counted="a") == room


def test_a_node_has_the_mode_of_most_of_its_gpus() -> None:
    """It knows one, the last record's; a GPU in the other has nothing to give."""
    gpus = [replace(CUT, uuid="a"), replace(SOFT, uuid="b", index=1), replace(CUT, uuid="c")]

    found = registered_gpus([*gpus[:2], replace(gpus[2], index=2)], [], ())

    assert [(one.uuid, one.mode, one.slots) for one in found] == [
        ("a", Mode.MIG, 10),
        ("b", Mode.MIG, 0),
        ("c", Mode.MIG, 10),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("", True, id="missing"),
        pytest.param("hello", True, id="unreadable"),
        pytest.param("Reported 2026-11-21 16:00:00 +0000 UTC", False, id="reported"),
        pytest.param("Requesting_2026.11.21 16:59:50", False, id="asked-just-now"),
        pytest.param("Requesting_2026.11.21 16:59:30", True, id="asked"),
        pytest.param("Requesting_yesterday", True, id="asked-at-some-time"),
        pytest.param("Deleted_2026.11.21 16:59:59", True, id="given-up"),
    ],
)
def test_when_an_answer_is_due(text: str, *, wanted: bool) -> None:
    """A question stands for 30 of the 60 seconds that its scheduler waits."""
    assert needs_report(text, NOW) is wanted
