"""Plans: what would become of a pod, what it would take, and how that is told."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import pytest
import yaml

from allocator.config.fleet_file import load_fleet
from allocator.config.manifest import pods_in
from allocator.config.settings import FleetScope, Settings
from allocator.model.gpu import Node
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.report.feasibility import (
    EXIT_CODES,
    Feasibility,
    FeasibilityVerdict,
    OptionKind,
    exit_code,
)
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from tests.builders.model import (
    A30,
    A100_40,
    T4,
    gpu,
    mig_grant,
    node,
    nodes_of,
    snapshot,
    soft_grant,
)
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, Json, container, pod
from webhook.admission.context import AdmissionContext
from webhook.plan.plan import Plan, plan
from webhook.plan.plan_json import document
from webhook.plan.plan_text import lines
from webhook.review.pod_schema import Pod

A100S = node(
    "a100",
    gpu(A100_40, index=0, mode=Mode.MIG, grants=[mig_grant("7g.40gb", 0)]),
    gpu(A100_40, index=1, mode=Mode.MIG),
)
T4S = node("t4", gpu(T4, index=0, grants=[soft_grant(12000, 80)]), gpu(T4, index=1))
BUSY = node("a30", gpu(A30, mode=Mode.MIG, grants=[mig_grant("4g.24gb", 0, product=A30)]))


def planned(written: Json, *nodes: Node, fleet: FleetScope = FleetScope.OPEN) -> Plan:
    found = pods_in(yaml.safe_dump(written), Pod)
    assert isinstance(found, Loaded)
    around = AdmissionContext(
        settings=Settings(fleet=fleet), snapshot=snapshot(*nodes or (A100S, T4S)), host_paths=True
    )
    return plan(found.value[0], around)


def asking(
    memory: int,
    number: int = 1,
    *,
    cores: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    limits = {NUMBER: number, MEMORY: memory} | ({} if cores is None else {CORES: cores})
    return pod(container(limits=limits), annotations=annotations)


def outlook(found: Plan) -> Feasibility:
    assert found.outlook is not None
    return found.outlook


def text(found: Plan) -> list[str]:
    shown = list(map(plain_text, printed_lines(lines(found, "pod.yaml"))))
    assert max(map(len, shown)) <= WIDTH
    return shown


BESIDE = """
nodes:
- {name: beside, model: A100-SXM4-40GB, mode: mps, busy: [{gpu: 0, memory: 30000, cores: 60}]}
"""


@pytest.mark.parametrize(
    ("memory", "mode", "verdict"),
    [
        (9000, "mps", FeasibilityVerdict.FITS),
        (20000, "mps", FeasibilityVerdict.NOT_NOW),
        (90000, "mps", FeasibilityVerdict.NEVER),
        (9000, "hami-core", FeasibilityVerdict.NEVER),
        (9000, None, FeasibilityVerdict.NEVER),
    ],
)
def test_a_gpu_in_mode_mps_of_a_fleet_file_serves_those_who_name_it(
    memory: int, mode: str | None, verdict: FeasibilityVerdict
) -> None:
    """Its share in use counts, and nobody else ever gets it."""
    fleet = load_fleet(BESIDE)
    assert isinstance(fleet, Loaded)
    written = asking(memory, annotations=None if mode is None else {MODE: mode})

    assert outlook(planned(written, *fleet.value)).verdict is verdict


FORGED = asking(3000, annotations={"vgpu-admission.io/c0.visible": "all"})


@pytest.mark.parametrize(
    ("written", "nodes", "verdict"),
    [
        pytest.param(asking(3000), (A100S,), FeasibilityVerdict.FITS, id="fits"),
        pytest.param(pod(container()), (A100S,), FeasibilityVerdict.NO_REQUEST, id="asks-nothing"),
        pytest.param(asking(20000), (BUSY,), FeasibilityVerdict.NOT_NOW, id="busy"),
        pytest.param(asking(90000), (A100S,), FeasibilityVerdict.NEVER, id="too-big"),
        pytest.param(
            pod(container(limits={MEMORY: "8Gi"})), (A100S,), FeasibilityVerdict.REFUSED, id="unit"
        ),
        pytest.param(FORGED, (A100S,), FeasibilityVerdict.REFUSED, id="forged"),
    ],
)
def test_each_pod_gets_a_verdict(
    written: Json, nodes: tuple[Node, ...], verdict: FeasibilityVerdict
) -> None:
    """What the hardware could serve, now or later, and what no hardware would."""
    assert planned(written, *nodes).verdict is verdict


@pytest.mark.parametrize(
    ("fleet", "allowed"),
    [
        pytest.param(FleetScope.OPEN, True, id="open"),
        pytest.param(FleetScope.CLOSED, False, id="closed"),
    ],
)
def test_never_is_the_fleets_word_and_admission_has_its_own(
    fleet: FleetScope, *, allowed: bool
) -> None:
    """An open fleet admits what no known GPU serves; it never fits these GPUs all the same."""
    found = planned(asking(90000), fleet=fleet)

    assert (found.verdict, found.answer.allowed) == (FeasibilityVerdict.NEVER, allowed)


def test_the_worst_verdict_is_the_exit_code() -> None:
    """5 before 4 before 0, and every verdict has a code."""
    assert set(EXIT_CODES) == set(FeasibilityVerdict)
    assert exit_code([]) == 0
    assert exit_code([FeasibilityVerdict.FITS, FeasibilityVerdict.NO_REQUEST]) == 0
    assert exit_code([FeasibilityVerdict.NOT_NOW, FeasibilityVerdict.FITS]) == 4
    assert (
        exit_code([FeasibilityVerdict.NOT_NOW, FeasibilityVerdict.REFUSED, FeasibilityVerdict.FITS])
        == 5
    )


def test_a_mode_that_may_be_revised_is_looked_for_in_both() -> None:
    """The Binding would do so too; a mode that was named is kept to."""
    taken = gpu(A100_40, mode=Mode.MIG, grants=[mig_grant("7g.40gb", 0)])
    nodes = node("busy", taken), nodes_of(1, A100_40, name="free")

    free = planned(asking(3000), *nodes)
    named = planned(asking(3000, annotations={MODE: "mig"}), *nodes)

    assert [device.grant.mode for device in outlook(free).devices] == [Mode.HAMI_CORE]
    assert named.verdict is FeasibilityVerdict.NOT_NOW


def test_devices_say_where_each_container_sits() -> None:
    """Node, GPU and placement, as they would be granted."""
    (device,) = outlook(planned(asking(3000), A100S)).devices

    assert (device.container, device.node, device.gpu.index) == ("main", "a100", 1)
    assert device.grant.placed is not None
    assert device.grant.placed.profile.name == "1g.5gb"


def options(found: Plan) -> dict[OptionKind, str]:
    there = () if found.outlook is None else found.outlook.options
    return {option.kind: option.text for option in there}


def test_a_pod_that_fits_needs_no_options() -> None:
    """Advice is for those who wait."""
    assert outlook(planned(asking(3000))).options == ()


def test_dropping_a_constraint_is_an_option_only_if_it_helps() -> None:
    """Each is lifted by itself; what would not help is not named."""
    model = {"nvidia.com/use-gputype": "A30"}
    helped = planned(asking(20000, annotations=model), A100S, BUSY)
    helpless = planned(asking(90000, annotations=model), A100S, BUSY)

    assert options(helped)[OptionKind.LIFT] == (
        "remove nvidia.com/use-gputype: the pod fits now, mig on a100"
    )
    assert OptionKind.LIFT not in options(helpless)


def test_a_constraint_that_only_waiting_would_meet_is_named_as_such() -> None:
    """Without its mode the pod would have to wait, with it it would wait for ever."""
    full = node("t4", gpu(T4, grants=[soft_grant(15000)]))

    found = planned(asking(3000, annotations={MODE: "mig"}), full)

    assert options(found)[OptionKind.LIFT] == f"remove {MODE}: the pod fits after other pods end"


def test_what_never_fits_is_told_the_smallest_model_that_would_do() -> None:
    """Memory decides which is smallest; where nothing would do, nothing is said."""
    grown = planned(asking(41000), A100S)
    beyond = planned(asking(10_000_000), A100S)

    assert options(grown)[OptionKind.GROW].startswith("add a node with 1 ")
    assert OptionKind.GROW not in options(beyond)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        pytest.param("fits", asking(3000), id="fits"),
        pytest.param("soft", asking(3000, cores=30), id="soft"),
        pytest.param("not-now", asking(30000, 2), id="not-now"),
        pytest.param("never", asking(90000), id="never"),
        pytest.param("refused", pod(container(limits={MEMORY: "8Gi"})), id="refused"),
        pytest.param("nothing", pod(container()), id="nothing"),
        pytest.param(
            "several",
            pod(
                container("main", {NUMBER: 1, MEMORY: 3000}),
                container("side", {NUMBER: 1, MEMORY: 1000}),
                init=[container("setup", {NUMBER: 1, MEMORY: 500})],
            ),
            id="several-containers",
        ),
    ],
)
def test_a_plan_reads_well(name: str, written: Json, golden: Callable[[str, str], str]) -> None:
    """The whole text, as reviewed; --update-golden writes it anew."""
    shown = "\n".join(text(planned(written, fleet=FleetScope.CLOSED))) + "\n"

    assert shown == golden(f"plan-{name}.txt", shown)


def test_text_that_a_terminal_would_obey_is_taken_out() -> None:
    """A manifest is a stranger's; printing a plan of it must do nothing but print."""
    written = asking(3000, annotations={"nvidia.com/use-gputype": "\x1b[31mred"})
    written["metadata"]["name"] = "\x1b]0;title\x07"

    assert "\x1b" not in "".join(text(planned(written)))
    assert "\x07" not in "".join(text(planned(written)))


def keys(value: object) -> set[str]:
    """Return every key in *value*, but for those that are data."""
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    if not isinstance(value, dict):
        return set()
    inner = {key for name, item in value.items() if name not in DATA for key in keys(item)}
    return set(value) | inner


DATA = {"patch", "costsPerMille"}
DOCS = Path(__file__).parents[4] / "docs" / "plan.md"


def test_all_reasons_of_a_refusal_are_shown() -> None:
    """The API server's answer has the first and a number; here there is room for the others."""
    found = planned(pod(*(container(name, limits={MEMORY: "8Gi"}) for name in ("a", "b", "c"))))

    shown = " ".join(" ".join(text(found)).split())

    assert "(+2 more)" in found.answer.message
    assert "more)" not in shown
    assert [shown.count(f'container "{name}": vgpu-memory "8Gi"') for name in "abc"] == [1, 1, 1]
    assert shown.count("[MalformedRequest") == 3


def test_every_key_and_value_is_documented() -> None:
    """What scripts may rely on is on the page, and nothing else is in the document."""
    page = DOCS.read_text()
    made = [planned(asking(3000)), planned(asking(30000, 2)), planned(asking(90000))]
    shape = orjson.loads(orjson.dumps(document([("pod.yaml", one) for one in made])))
    words = set(re.findall(r"[\w-]+", page))

    assert [key for key in sorted(keys(shape)) if f"{key}:" not in page] == []
    assert {str(verdict) for verdict in FeasibilityVerdict} | {
        str(kind) for kind in OptionKind
    } <= words


def test_the_document_has_the_shape_that_is_documented() -> None:
    """Scripts read it: names are public API, and it is JSON through and through."""
    found = planned(asking(30000, 2))
    shape = orjson.loads(orjson.dumps(document([("pod.yaml", found)])))

    assert (shape["apiVersion"], shape["kind"]) == ("vgpu-admission.io/v1alpha1", "Plan")
    assert shape["exitCode"] == 4
    (one,) = shape["pods"]
    assert (one["file"], one["place"], one["verdict"]) == ("pod.yaml", "document 1", "not-now")
    assert one["asked"]["containers"][0] == {
        "name": "main",
        "stage": "app",
        "count": 2,
        "memoryMiB": 30000,
        "memoryPercent": None,
        "coresPercent": 0,
    }
    assert one["admission"]["mode"] == "mig"
    assert one["admission"]["patch"][0]["op"] == "add"
    assert one["devices"] == []
    assert one["findings"][0]["remedy"]
    assert {"kind", "text"} == set(one["options"][0])
    assert sum(candidate["count"] for candidate in one["candidates"]) == 4
