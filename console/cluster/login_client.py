"""Credentials from exec plugins and auth-providers: the one module that imports `kubernetes`.

The package runs exec plugins and refreshes OIDC tokens. It is optional and slow to import, so
:mod:`console.cluster.kubeconfig_files` imports this module only where a kubeconfig needs it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode, load_kube_config_from_dict

from kube.config import Access, KubeconfigLogin
from kube.errors import ConfigError, shorten

LOGIN_SECONDS: Final = 120.0  # an exec plugin of the kubeconfig may ask the person something
_UNUSABLE: Final = (ConfigException, OSError, ValueError, ImportError)
# The package does not check types: a list in place of a mapping raises one of these inside it.
_MISSHAPEN: Final = (TypeError, AttributeError, KeyError)


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    """The status of an ExecCredential of client.authentication.k8s.io."""

    token: str | None = None
    client_certificate_data: str | None = None  # PEM
    client_key_data: str | None = None  # PEM


async def plugin_access(login: KubeconfigLogin) -> Access:
    """Return the access of *login* with what its exec plugin or auth-provider returns.

    Raises :class:`ConfigError` where that returns no credentials within :data:`LOGIN_SECONDS`.
    """
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            if login.auth_provider is not None:
                return replace(login.access, token=await _provider_token(login.auth_provider))
            return _with_credential(login, await _exec_status(login.exec or {}))
    except TimeoutError as error:
        raise ConfigError(f"{login.place}: no credentials within {LOGIN_SECONDS:g} s") from error
    except _UNUSABLE as error:
        raise ConfigError(f"{login.place}: {shorten(' '.join(str(error).split()))}") from error
    except _MISSHAPEN as error:
        raise ConfigError(f"{login.place}: {_misshapen_text(login)}") from error


async def _exec_status(plugin: Mapping[str, object]) -> object:
    """Run the program of an ``exec`` section and return the status that it prints."""
    provider = ExecProvider(  # type: ignore[no-untyped-call]  # ships without types
        ConfigNode("exec", plugin)  # type: ignore[no-untyped-call]  # as above
    )
    status: object = await provider.run()  # type: ignore[no-untyped-call]  # as above
    return status


def _with_credential(login: KubeconfigLogin, status: object) -> Access:
    credential = msgspec.convert(status, _ExecCredential)
    certificate, key = credential.client_certificate_data, credential.client_key_data
    access = login.access
    if certificate and key:
        access = replace(access, certificate=certificate.encode(), key=key.encode())
    elif not credential.token:
        raise ConfigError(
            f"{login.place}: the exec plugin returned no credentials; accepted: token, or"
            " clientCertificateData with clientKeyData"
        )
    return replace(access, token=credential.token) if credential.token else access


async def _provider_token(provider: Mapping[str, object]) -> str:
    """Return the token of an ``auth-provider`` section; nothing is written back to a file."""
    document: dict[str, Any] = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {}}],
        "users": [{"name": "one", "user": {"auth-provider": provider}}],
    }
    configuration = Configuration()
    await load_kube_config_from_dict(  # type: ignore[no-untyped-call]  # ships without types
        document, client_configuration=configuration
    )
    token = configuration.api_key.get("BearerToken", "").removeprefix("Bearer ")
    if not token:
        name = provider.get("name")
        raise ConfigException(f"auth-provider {name!r} is not supported; accepted: oidc, gcp")
    return token


def _misshapen_text(login: KubeconfigLogin) -> str:
    if login.auth_provider is not None:
        return "its auth-provider section is not one of a kubeconfig"
    return "its exec section, or what the plugin printed, is malformed"
