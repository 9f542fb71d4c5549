"""Policy files of old: what they meant is kept to the letter, or refused with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from allocator.config.scheduler_policy import scheduler_configuration
from allocator.model.problem import Loaded, Rejected

GUIDE = (Path(__file__).parents[3] / "guides/gpushare-scheduler-policy.json").read_text()
PREFIX = "http://127.0.0.1:32766/gpushare-scheduler"


def policy(**extender: object) -> str:
    document = {"kind": "Policy", "apiVersion": "v1"}
    return json.dumps({**document, "extenders": [{"urlPrefix": PREFIX, **extender}]})


def converted(text: str) -> dict[str, Any]:
    found = scheduler_configuration(text, kubeconfig="/etc/x.conf")
    assert isinstance(found, Loaded), str(found)
    return found.value


def problems(text: str) -> str:
    found = scheduler_configuration(text, kubeconfig="/etc/x.conf")
    assert isinstance(found, Rejected)
    return str(found)


def test_the_file_of_gpushares_guide_is_converted_whole() -> None:
    """Each of its keys has its place; only the spelling of HTTPS is another."""
    assert converted(GUIDE) == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/x.conf"},
        "extenders": [
            {
                "urlPrefix": PREFIX,
                "filterVerb": "filter",
                "bindVerb": "bind",
                "enableHTTPS": False,
                "nodeCacheCapable": True,
                "ignorable": False,
                "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
            }
        ],
    }


def test_every_other_key_of_an_extender_is_kept() -> None:
    """A timeout is a number of nanoseconds there, and a duration here."""
    tls = {"insecure": True, "caFile": "/a", "serverName": "s"}
    more = {"prioritizeVerb": "p", "preemptVerb": "v", "weight": 5, "httpTimeout": 5_000_000_000}
    (found,) = converted(policy(**more, tlsConfig=tls, enableHttps=True))["extenders"]

    kept = {**more, "httpTimeout": "5000000000ns", "tlsConfig": tls, "enableHTTPS": True}
    assert {key: found[key] for key in kept} == kept


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "a mapping", id="empty"),
        pytest.param("{", "accepted: a Policy", id="broken"),
        pytest.param("[" * 5000, "accepted: a Policy", id="deep"),
        pytest.param("a: &a [x]\nb: [*c]", "accepted: a Policy", id="alias"),
        pytest.param("x" * 70_000, "more than 65536", id="large"),
        pytest.param("[]", "a list found", id="list"),
        pytest.param('{"kind": "Pod"}', 'kind: "Pod" found; accepted: Policy', id="kind"),
        pytest.param('{"kind": "Policy", "apiVersion": "v2"}', "apiVersion", id="version"),
        pytest.param('{"kind": "Policy", "extenders": {}}', "extenders", id="extenders"),
        pytest.param('{"kind": "Policy"}', "extenders: missing", id="none"),
        pytest.param(
            '{"kind": "Policy", "predicates": []}', 'unknown key "predicates"', id="predicates"
        ),
        pytest.param(policy(urlPrefix=7), "urlPrefix: 7 found", id="number"),
        pytest.param(policy(urlPrefix="file:///etc/passwd"), "http or https", id="scheme"),
        pytest.param(policy(urlPrefix="http://[::1"), "http or https", id="host"),
        pytest.param(policy(urlPrefix="http://a:99999/"), "http or https", id="port"),
        pytest.param(policy(urlPrefix="http://a\nb: c"), "http or https", id="line"),
        pytest.param(policy(enableHTTPS=True), 'unknown key "enableHTTPS"', id="spelling"),
        pytest.param(policy(enableHttps="yes"), "true or false", id="flag"),
        pytest.param(policy(weight=-1), "weight: -1 found", id="weight"),
        pytest.param(policy(weight=10**30), "weight", id="huge"),
        pytest.param(policy(httpTimeout="5s"), "httpTimeout", id="timeout"),
        pytest.param(policy(tlsConfig={"key": ""}), 'unknown key "key"', id="tls"),
        pytest.param(policy(managedResources=[{"name": "cpu"}]), "extended", id="resource"),
        pytest.param(policy(managedResources=["x"]), "a mapping", id="item"),
        pytest.param(policy(managedResources=[{"name": "a/b"}] * 65), "at most 64", id="many"),
        pytest.param(
            json.dumps(json.loads(GUIDE) | {"extenders": json.loads(GUIDE)["extenders"] * 2}),
            "several name a bindVerb",
            id="two-binders",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(text: str, words: str) -> None:
    """And never dropped: the scheduler would do something else than before."""
    assert words in problems(text)
