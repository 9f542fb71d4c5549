"""The program of a simulated MetaX node: `vgpu agent` where the fleet file says that it is one."""

from dataclasses import dataclass
from pathlib import Path

import structlog

from agent.metax.machine import MetaxMachine
from agent.metax.simulation_server import MetaxPaths, MetaxSimulation
from allocator.cli.http_server import Listen, serve
from allocator.cli.process import background, stop_event
from allocator.cli.status_server import STATUS_LIMITS, status_app
from kube.client import Client
from kube.config import Access

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaxOptions:
    """What a simulated MetaX node takes of the agent's command line."""

    access: Access
    node: str  # name of our Node
    listen: Listen
    kubelet: Path  # kubelet's directory
    state: Path  # the agent's folder for files that outlive it
    withdraw: bool = False  # remove what was written on the Node, instead of serving


async def run_metax(options: MetaxOptions, machine: MetaxMachine) -> None:
    """Run until SIGTERM or SIGINT; a task that fails ends the program. Raises OSError."""
    stop = stop_event()
    options.state.mkdir(parents=True, exist_ok=True)
    paths = MetaxPaths(kubelet=options.kubelet, state=options.state)
    async with Client(options.access) as client:
        simulation = MetaxSimulation(machine, client, paths, node=options.node)
        try:
            async with background() as start:
                if options.withdraw:
                    start(simulation.withdraw_forever(), "withdrawal")
                else:
                    start(simulation.publish(), "node")
                    start(simulation.serve(), "service")
                why = _always_ready if options.withdraw else simulation.not_ready_reason
                answers = status_app(why, _no_metrics)
                async with serve(answers, options.listen, limits=STATUS_LIMITS, drain=2) as port:
                    log.info("serving", port=port, node=options.node, resource=machine.resource)
                    await stop.wait()
            await simulation.depart()
        finally:
            await simulation.close()


def _always_ready() -> str:
    return ""


def _no_metrics() -> tuple[str, bytes]:
    """Return no sample: nothing of ours measures use on MetaX's nodes."""
    return "text/plain; version=0.0.4; charset=utf-8", b""
