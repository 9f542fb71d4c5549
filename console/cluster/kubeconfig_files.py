"""Which kubeconfig a command reads, and the address and credentials in it."""

import os
from dataclasses import replace
from typing import Final

from kube.config import (
    Access,
    KubeconfigLogin,
    default_kubeconfigs,
    existing_files,
    in_cluster,
    kubeconfig_login,
)
from kube.errors import ConfigError

_INSTALL: Final = "pip install '.[kubectl]'"


async def access_of(kubeconfig: str | None, context: str | None) -> Access:
    """Return how to reach the API server as *context* of *kubeconfig*.

    ``None`` stands for the defaults of kubectl: ``$KUBECONFIG``, then ``~/.kube/config``; the
    current context. In a pod without a kubeconfig it is the pod's service account. Raises
    :class:`ConfigError` if no kubeconfig is usable.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG")
    files = named or default_kubeconfigs()
    existing = existing_files(files)
    if existing:
        return await _authenticated(kubeconfig_login(existing, context))
    if named is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return replace(in_cluster(), namespace="default")
    raise ConfigError(f"{files} does not exist; name a file with --kubeconfig or KUBECONFIG")


async def _authenticated(login: KubeconfigLogin) -> Access:
    """Return the access with the credentials that a plugin makes, where *login* names one."""
    if login.exec is None and login.auth_provider is None:
        return login.access
    try:
        # The package takes two seconds to import, and is not installed everywhere.
        from console.cluster.login_client import plugin_access  # noqa: PLC0415 -- see above
    except ModuleNotFoundError as error:
        kind = "an auth-provider" if login.exec is None else "an exec plugin"
        raise ConfigError(
            f"{login.place} authenticates with {kind}, which needs the Python package"
            f" kubernetes; install it with {_INSTALL}"
        ) from error
    return await plugin_access(login)
