"""kube-scheduler's Policy files, which 1.23 and newer no longer read, as its configuration.

Guides of gpushare name their extender in such a file. Source of the keys: Kubernetes 1.22,
``k8s.io/kube-scheduler/config/v1`` (Policy, LegacyExtender) and ``KubeSchedulerConfiguration``.
"""

import re
from typing import Any, Final

from allocator.config.document import DocumentError, DocumentTable, Notes, describe, read_document
from allocator.model.problem import Loaded, Problem, Rejected

Json = dict[str, Any]
API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
MOST_BYTES: Final = 64 * 1024  # a Policy has some lines
MOST_EXTENDERS: Final = 16
MOST_RESOURCES: Final = 64
MOST_WEIGHT: Final = 1_000_000
MOST_TIMEOUT: Final = 600 * 10**9  # nanoseconds
_LAST_PORT: Final = 65535
# Scheme, host (a name, an IPv4 address, or an IPv6 address in brackets), port, path.
_ADDRESS: Final = re.compile(
    r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[A-Za-z0-9._~/%-]{0,1024})?"
)
_KEYS: Final = ("kind", "apiVersion", "extenders")
_VERBS: Final = ("filterVerb", "preemptVerb", "prioritizeVerb", "bindVerb")
_FLAGS: Final = ("nodeCacheCapable", "ignorable")
_TLS: Final = (
    *("serverName", "certFile", "keyFile", "caFile"),
    *("certData", "keyData", "caData"),
)
_EXTENDER: Final = (
    *("urlPrefix", *_VERBS, "weight", "enableHttps", "tlsConfig", "httpTimeout"),
    *("nodeCacheCapable", "managedResources", "ignorable"),
)


def scheduler_configuration(text: str, *, kubeconfig: str) -> Loaded[Json] | Rejected:
    """Return the KubeSchedulerConfiguration that does what the Policy *text* did.

    *kubeconfig* is the path that the scheduler had in ``--kubeconfig``, which counts no more
    beside ``--config``. A key whose meaning would be lost is a problem, never left out.
    """
    notes = Notes()
    try:
        document = read_document(text, most=MOST_BYTES)
    except DocumentError as error:
        problem = Problem(path="document", what=str(error), accepted="a Policy, as JSON or YAML")
        return Rejected((problem,))
    policy = DocumentTable.of(document, "", notes)
    _check_kind(policy)
    policy.check_keys(_KEYS, refuse=True)
    extenders = policy.tables("extenders", required=True)
    if len(extenders) > MOST_EXTENDERS:
        notes.error("extenders", f"{len(extenders)} of them", f"at most {MOST_EXTENDERS}")
    converted = [_extender(one) for one in extenders[:MOST_EXTENDERS]]
    if sum("bindVerb" in one for one in converted) > 1:
        notes.error("extenders", "several name a bindVerb", "one that binds")
    if notes.errors:
        return Rejected(tuple(notes.errors))
    configuration = {
        "apiVersion": API_VERSION,
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "extenders": converted,
    }
    return Loaded(value=configuration)


def _check_kind(policy: DocumentTable) -> None:
    for key, expected in (("kind", "Policy"), ("apiVersion", "v1")):
        if policy.values and policy.text(key, expected) != expected:
            policy.note_wrong(key, expected)


def _extender(written: DocumentTable) -> Json:
    written.check_keys(_EXTENDER, refuse=True)
    made: Json = {"urlPrefix": _url_prefix(written)}
    for verb in _VERBS:
        if written.values.get(verb) not in {None, ""}:
            made[verb] = written.text(verb)
    if written.values.get("weight") is not None:
        made["weight"] = written.integer("weight", None, low=1, high=MOST_WEIGHT)
    made["enableHTTPS"] = _flag(written, "enableHttps")
    if written.values.get("tlsConfig") is not None:
        made["tlsConfig"] = _tls_config(written)
    if written.values.get("httpTimeout") is not None:  # Go's Duration: a number of nanoseconds
        made["httpTimeout"] = f"{written.integer('httpTimeout', None, low=1, high=MOST_TIMEOUT)}ns"
    made |= {flag: _flag(written, flag) for flag in _FLAGS}
    if resources := _managed_resources(written):
        made["managedResources"] = resources
    return made


def _url_prefix(written: DocumentTable) -> str:
    prefix = written.text("urlPrefix")
    match = _ADDRESS.fullmatch(prefix)
    usable = match is not None and 0 < int(match["port"] or 1) <= _LAST_PORT
    if prefix and not usable:
        accepted = "an http or https address, such as http://127.0.0.1:32766/x"
        written.note_wrong("urlPrefix", accepted)
    return prefix


def _flag(written: DocumentTable, key: str) -> bool:
    value = written.values.get(key)
    if value is not None and not isinstance(value, bool):
        written.note_wrong(key, "true or false")
    return value is True


def _tls_config(written: DocumentTable) -> Json:
    table = DocumentTable.of(written.values["tlsConfig"], written.at("tlsConfig"), written.notes)
    table.check_keys(("insecure", *_TLS), refuse=True)
    texts = {key: table.text(key) for key in _TLS if table.values.get(key) not in {None, ""}}
    return {"insecure": _flag(table, "insecure"), **texts}


def _managed_resources(written: DocumentTable) -> list[Json]:
    tables = written.tables("managedResources")
    if len(tables) > MOST_RESOURCES:
        what = f"{len(tables)} of them"
        written.notes.error(written.at("managedResources"), what, f"at most {MOST_RESOURCES}")
    made = []
    for table in tables[:MOST_RESOURCES]:
        table.check_keys(("name", "ignoredByScheduler"), refuse=True)
        name = table.text("name")
        if name and ("/" not in name or not name.isprintable() or " " in name):
            what = f"{describe(name)} found"
            table.notes.error(table.at("name"), what, "an extended resource, such as example.com/x")
        ignored = _flag(table, "ignoredByScheduler")
        made.append({"name": name, "ignoredByScheduler": ignored})
    return made
