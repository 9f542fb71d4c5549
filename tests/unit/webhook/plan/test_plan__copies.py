"""Plans of workloads: all pods that run at the same time count, those of one object together."""

import yaml

from allocator.config.manifest import pods_in
from allocator.config.settings import Settings
from allocator.model.gpu import Node
from allocator.model.problem import Loaded
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from allocator.report.together import PodOfFile
from tests.builders.model import T4, gpu, node, nodes_of, snapshot, soft_grant
from tests.builders.pods import MEMORY, Json, container
from webhook.admission.context import AdmissionContext
from webhook.plan.plan import Plan, plans
from webhook.plan.plan_json import document
from webhook.plan.plan_text import lines
from webhook.review.pod_schema import Pod

FITS, LATER = FeasibilityVerdict.FITS, FeasibilityVerdict.NOT_NOW
NEVER, REFUSED = FeasibilityVerdict.NEVER, FeasibilityVerdict.REFUSED
NOTHING = FeasibilityVerdict.NO_REQUEST
TWO = nodes_of(2, T4)


def template(memory: object) -> Json:
    limits = {} if memory is None else {MEMORY: memory}
    return {"spec": {"containers": [container(limits=limits)]}}


def deployment(memory: object, replicas: int) -> Json:
    spec = {"replicas": replicas, "template": template(memory)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def gang(*tasks: tuple[object, int], least: int | None = None) -> Json:
    spec: Json = {
        "tasks": [{"replicas": number, "template": template(memory)} for memory, number in tasks]
    }
    spec |= {} if least is None else {"minAvailable": least}
    meta = {"metadata": {"name": "j"}, "spec": spec}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **meta}


def planned(*written: Json, nodes: tuple[Node, ...] = (TWO,)) -> list[Plan]:
    found = pods_in(yaml.safe_dump_all(written), Pod)
    assert isinstance(found, Loaded), str(found)
    pods = [PodOfFile(file="w.yaml", number=0, made=made) for made in found.value]
    around = AdmissionContext(settings=Settings(), snapshot=snapshot(*nodes), host_paths=True)
    return [one for _, one in plans(pods, around)]


def verdicts(*written: Json, nodes: tuple[Node, ...] = (TWO,)) -> list[FeasibilityVerdict]:
    return [one.verdict for one in planned(*written, nodes=nodes)]


def test_a_workload_fits_where_all_of_its_pods_do() -> None:
    """Two of 8000 MiB fit two T4, three never do, and where one is busy two have to wait."""
    busy = (node("n0", gpu(T4, grants=[soft_grant(9000)]), gpu(T4, index=1)),)

    assert verdicts(deployment(8000, 2)) == [FITS]
    assert verdicts(deployment(8000, 3)) == [NEVER]
    assert verdicts(deployment(8000, 2), nodes=busy) == [LATER]
    assert verdicts(deployment(8000, 0)) == [FITS]
    assert verdicts(deployment(None, 2**31 - 1)) == [NOTHING]
    assert verdicts(deployment(90000, 3)) == [NEVER]
    assert verdicts(deployment("8Gi", 3)) == [REFUSED]


def test_each_object_has_the_fleet_to_itself() -> None:
    """Whether two of them run at the same time is not in the file."""
    assert verdicts(deployment(15000, 2), deployment(15000, 2)) == [FITS, FITS]


def test_tasks_of_one_job_share_the_fleet() -> None:
    """What the first takes the second does not find."""
    assert verdicts(gang((15000, 1), (8000, 1))) == [FITS, FITS]
    assert verdicts(gang((15000, 1), (8000, 2))) == [FITS, LATER]
    assert verdicts(gang((None, 1), (8000, 2))) == [NOTHING, FITS]


def test_a_gang_that_is_large_enough_starts() -> None:
    """Volcano starts it with its minimum, whichever tasks the pods are of."""
    assert verdicts(gang((8000, 5), least=2)) == [FITS]
    assert verdicts(gang((8000, 5), least=3)) == [NEVER]
    assert verdicts(gang((15000, 1), (7000, 9), least=3)) == [FITS, FITS]
    assert verdicts(gang((15000, 1), (7000, 9), least=4)) == [FITS, LATER]
    assert verdicts(gang((None, 2), (8000, 9), least=4)) == [NOTHING, FITS]


def test_more_pods_than_are_placed_fit_where_those_do() -> None:
    """Counting further would take longer and say nothing new."""
    many = tuple(nodes_of(8, T4, name=f"n{number}") for number in range(64))

    assert verdicts(deployment(1500, 5000), nodes=many) == [FITS]
    assert verdicts(gang((1500, 5000), (1500, 5), least=5003), nodes=many) == [FITS, FITS]


def test_it_is_told_how_many_fit_and_where() -> None:
    """The number to ask for can be pasted."""
    (found,) = planned(deployment(8000, 3))

    shown = [plain_text(line) for line in printed_lines(lines(found, "w.yaml"), WIDTH)]
    assert max(map(len, shown)) <= WIDTH
    assert "pods      2 of 3 pods fit at the same time: 2 on n0" in shown
    assert "try       ask for at most 2 at the same time; more never fit these GPUs" in shown


def test_scripts_read_the_same() -> None:
    """Numbers, not words; null for what was not asked."""
    written = document([("w.yaml", one) for one in planned(gang((8000, 5), least=2))])

    assert written["exitCode"] == 0
    assert written["pods"][0]["copies"] == {
        "wanted": 5,
        "needed": 2,
        "fitting": 2,
        "ever": None,
        "nodes": [{"name": "n0", "pods": 2}],
    }
