"""The agent's commands: the program itself, and the doctor that looks at a node."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import click

from agent.doctor import doctor_cli
from agent.health.xid import xid_policy
from agent.metax.simulation_cli import MetaxOptions, run_metax
from agent.mig.journal_files import JournalInUseError
from agent.mps.launch import MpsLauncher
from agent.node import paths_cli
from agent.region.library_files import FOLDER
from agent.serve import agent as app
from agent.serve import options as agent_options
from agent.serve.options import (
    AgentOptions,
    DriverKind,
    FleetError,
    nvml_driver,
    simulated_metax,
)
from allocator.cli.audit import AuditOptions, audit_options
from allocator.cli.http_server import Listen
from allocator.cli.options import (
    ADDRESS,
    HostPort,
    access,
    context,
    kubeconfig,
    log_lines,
    namespace,
    run_to_end,
)
from allocator.model.problem import Problem


@click.command("agent")
@click.option("--node-name", "node", envvar="NODE_NAME", required=True, help="name of this node")
@click.option(
    "--driver",
    type=click.Choice([kind.value for kind in DriverKind]),
    default=DriverKind.NVML.value,
    show_default=True,
    help="nvml for NVIDIA's driver, simulated for the GPUs of --fleet",
)
@click.option(
    "--fleet",
    type=click.Path(path_type=Path, dir_okay=False),
    default=agent_options.FLEET,
    show_default=True,
    help="file with the simulated GPUs, for --driver=simulated",
)
@paths_cli.root
@paths_cli.kubelet
@paths_cli.host_root
@click.option(
    "--relay-dir",
    "relay",
    type=click.Path(path_type=Path, file_okay=False),
    help="directory where `vgpu relay` listens; without it, kubelet calls the agent itself",
)
@click.option(
    "--library",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="directory with the interception library to install",
)
@click.option(
    "--metrics",
    type=ADDRESS,
    default="0.0.0.0:9394",
    show_default=True,
    help="where to serve metrics and health checks",
)
@click.option(
    "--xids-ignored",
    "ignored",
    envvar="DP_DISABLE_HEALTHCHECKS",
    default="",
    help="XIDs that leave a GPU in service: numbers separated by commas, or all",
)
@click.option(
    "--xids-heeded",
    "heeded",
    envvar="DP_ENABLE_HEALTHCHECKS",
    default="",
    help="XIDs that take a GPU out of service although ignored or harmless by default: numbers "
    "separated by commas, or all",
)
@click.option(
    "--mps-launcher",
    type=click.Choice([launcher.value for launcher in MpsLauncher]),
    default=MpsLauncher.CHILD.value,
    show_default=True,
    help="who keeps the daemons of mode mps running: the agent, which takes them along when its "
    "container ends, or systemd on the node",
)
@audit_options
@click.option("--withdraw", is_flag=True, help="remove all that agents added to the node")
@kubeconfig
@context
@namespace
def agent(
    node: str,
    driver: str,
    fleet: Path,
    root: Path,
    kubelet: Path,
    host_root: Path,
    relay: Path | None,
    library: Path,
    metrics: HostPort,
    ignored: str,
    heeded: str,
    mps_launcher: str,
    audit: AuditOptions | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    *,
    withdraw: bool,
) -> None:
    """Run the node agent: give containers their GPUs, enforce limits and report use."""
    log_lines()
    xids = xid_policy(ignored, heeded)
    if isinstance(xids, Problem):
        raise click.BadParameter(str(xids), param_hint="--xids-ignored, --xids-heeded")
    options = AgentOptions(
        access=access(kubeconfig, context),
        node=node,
        namespace=namespace,
        listen=Listen(*metrics),
        driver=DriverKind(driver),
        fleet=fleet,
        root=root,
        kubelet=kubelet,
        host_root=host_root,
        relay=relay,
        library=library,
        xids=xids,
        instance=os.environ.get("POD_NAME") or socket.gethostname(),
        audit=audit,
        mps_launcher=MpsLauncher(mps_launcher),
        withdraw=withdraw,
    )
    try:
        run_to_end(_program(options))
    except (FleetError, JournalInUseError) as error:
        raise click.ClickException(str(error)) from error


async def _program(options: AgentOptions) -> None:
    """Run the agent, or what stands in for MetaX's components where this is such a node.

    Raises FleetError, JournalInUseError or OSError.
    """
    simulated = options.driver is DriverKind.SIMULATED
    machine = simulated_metax(options.fleet, node=options.node) if simulated else None
    if machine is None:
        await app.run(options)
        return
    metax_options = MetaxOptions(
        access=options.access,
        node=options.node,
        listen=options.listen,
        kubelet=options.kubelet,
        state=options.root / app.STATE_DIRECTORY,
        withdraw=options.withdraw,
    )
    await run_metax(metax_options, machine)


@click.command("doctor")
@paths_cli.root
@paths_cli.kubelet
@paths_cli.host_root
@click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in doctor_cli.DoctorOutput]),
    default=doctor_cli.DoctorOutput.TEXT.value,
    show_default=True,
)
def doctor(root: Path, kubelet: Path, host_root: Path, output: str) -> None:
    """Check whether this node can serve GPUs, and say how to fix what fails.

    Changes nothing. Exits with 1 if any check fails, otherwise with 0.
    """
    log_lines()
    patient = doctor_cli.DoctorTarget(
        driver=nvml_driver(root), root=root, kubelet=kubelet, host_root=host_root
    )
    doctor_findings = asyncio.run(doctor_cli.examine(patient))
    sys.exit(
        doctor_cli.print_findings(doctor_findings, doctor_cli.DoctorOutput(output), sys.stdout)
    )
