"""Login to the cluster of a kubeconfig: the one module that imports the `kubernetes` package.

The package runs exec plugins and refreshes OIDC tokens. It is optional and slow to import, so
:func:`console.cluster.cluster_client.connect` imports this module only when a command reads.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.aio.client import ApiClient, Configuration, CoreV1Api, CustomObjectsApi
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from kube.client import user_agent
from kube.errors import ConfigError, shorten

LOGIN_SECONDS: Final = 120.0  # an exec plugin of the kubeconfig may ask the person something
_UNUSABLE: Final = (ConfigException, yaml.YAMLError, OSError, ValueError)
# The package does not check types: a list in place of a mapping raises one of these inside it.
_MISSHAPEN: Final = (TypeError, AttributeError, KeyError)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSession:
    """An authenticated connection; whoever gets it closes ``client``."""

    client: ApiClient
    core: CoreV1Api
    custom: CustomObjectsApi
    namespace: str  # of the context


async def login(kubeconfig: str | None, context: str | None) -> LoginSession:
    """Return a connection as *context* of *kubeconfig*, each with kubectl's defaults for ``None``.

    Raises :class:`ConfigError` if no kubeconfig is usable.
    """
    configuration = Configuration()
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            namespace = await _configure(configuration, kubeconfig, context)
        client = ApiClient(configuration)
    except TimeoutError as error:
        raise ConfigError(f"kubeconfig: no credentials within {LOGIN_SECONDS:g} s") from error
    except _UNUSABLE as error:
        raise ConfigError(f"kubeconfig: {shorten(' '.join(str(error).split()))}") from error
    except _MISSHAPEN as error:
        raise ConfigError("kubeconfig: a file is not a kubeconfig") from error
    client.user_agent = user_agent()
    return LoginSession(
        client=client,
        core=CoreV1Api(client),
        custom=CustomObjectsApi(client),
        namespace=namespace,
    )


async def _configure(
    configuration: Configuration, kubeconfig: str | None, context: str | None
) -> str:
    """Fill *configuration* from files, else as a pod; return the namespace to work in."""
    named = kubeconfig or os.environ.get("KUBECONFIG")
    files = named or str(Path.home() / ".kube" / "config")
    if not _exists(files):
        if named is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            load_incluster_config(  # type: ignore[no-untyped-call]  # ships without types
                client_configuration=configuration
            )
            return "default"
        raise ConfigError(f"{files} does not exist; name a file with --kubeconfig or KUBECONFIG")
    # Nothing is written back, so a token that was refreshed lives as long as this command.
    loader = await load_kube_config(  # type: ignore[no-untyped-call]  # ships without types
        files,
        context=context,
        client_configuration=configuration,
        persist_config=False,
    )
    chosen: dict[str, Any] = loader.current_context.get("context") or {}
    return str(chosen.get("namespace") or "default")


def _exists(files: str) -> bool:
    """Say whether any of *files*, a list as in the variable, is there."""
    return any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file)
