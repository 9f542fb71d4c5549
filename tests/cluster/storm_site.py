"""The site of large storms: 1,000 nodes, and two replicas that each serve hooks and schedulers."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.storm_cluster import (
    CLIENT,
    FLAGS,
    gpu_node,
    inventory,
    node_names,
    ready_node,
    run_all,
)
from benchmarks.storm_run import Watch, pods
from benchmarks.storm_truth import ALL_WELL, Truth, truth
from tests.cluster.api import wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.extender import add_extender, apply, extender
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import (
    GPU_NODES,
    PODS,
    Installation,
    Replica,
    installation,
)
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.scrape import Scrape

NODES = 1000
PODS_OF_A_STORM = 1000
ASKING = "default-scheduler"  # asks our replicas about nodes
WITHIN = 600.0  # seconds; a storm takes some 20, unless other tests have the processors
# A bind whose replica died after the commit may go elsewhere when it is tried again. What it left
# is taken back once no Binding can be on its way any more, 90 s after the commit.
AGED = 180.0  # seconds


@contextlib.contextmanager
def storm_site(
    programs: Mapping[str, Path], folder: Path, flags: Sequence[str] = ()
) -> Iterator[tuple[Installation, Process]]:
    """Yield the installation, and the scheduler that asks its replicas about nodes in turn.

    *flags* are more of the API server's.
    """
    settings, port = Settings(api_server_flags=(*FLAGS, *flags)), free_port()
    options = [f"--extender=127.0.0.1:{port}"]
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(
            installation(programs, folder, options=options, settings=settings)
        )
        apply(site, "rbac.yaml")
        ports = [port, add_extender(site)[1]]
        names = node_names(NODES)
        run_all(lambda node: site.api.create("/api/v1/nodes", node), map(ready_node, names))
        inventory(site.api, [gpu_node(name, i) for i, name in enumerate(names)])
        site.wait_for_models("A100")
        # kube-scheduler keeps one connection, so by connection one replica would get all of it.
        asked = stack.enter_context(forwarding(ports, by_request=True))
        scheduler = kube_scheduler(
            programs["kube-scheduler"], site.plane, client=CLIENT, extenders=[extender(asked)]
        )
        stack.callback(scheduler.stop)
        yield site, scheduler


@contextlib.contextmanager
def gathered(
    site: Installation, scheduler: Process, name: str = ASKING
) -> Iterator[tuple[str, Watch]]:
    """Let a storm gather before *scheduler*, which pods call *name*, and yield as it goes again.

    Yields the namespace, and who is bound there. Binds go to both replicas as soon as two are on
    their way at once: the API server knows no connection from before, to which it would keep.
    """
    team = site.namespace()
    call(site, site.first.port)
    scheduler.pause()
    try:
        waiting = [
            {**one, "spec": {**one["spec"], "schedulerName": name}} for one in pods(PODS_OF_A_STORM)
        ]
        run_all(lambda one: site.api.create(PODS.format(team), one), waiting)
        with forwarding([replica.port for replica in site.replicas]) as port:
            call(site, port)
            with Watch(site.api, team) as watch:
                scheduler.resume()
                yield team, watch
    finally:
        scheduler.resume()


def call(site: Installation, port: int) -> None:
    """Let the API server call this port, and return once it does."""
    site.point_at(port)
    site.wait_until_called()


def answered(replica: Replica) -> dict[str, float]:
    """Return how many binds a replica has decided so far, and how many questions it answered."""
    seen = Scrape(wait_for(lambda: replica.get("/metrics")[1]))
    (binds,) = seen.of("vgpu_admission_duration_seconds_count", **{"pass": "bind"})
    questions = {
        verb: seen.of("vgpu_schedule_duration_seconds_count", verb=verb)[0]
        for verb in ("filter", "prioritize")
    }
    return {"bind": binds, **questions}


def settled(site: Installation, team: str) -> Truth:
    """Return what the API objects say, once all is well or nothing more is to be expected."""

    def told() -> Truth:
        return truth(site.api.get(PODS.format(team))["items"], site.api.get(GPU_NODES)["items"])

    with contextlib.suppress(TimeoutError):
        wait_for(lambda: told() == ALL_WELL, within=AGED, every=1.0)
    return told()
