"""An API server that shows a certificate to our hooks, and calls from an address that is listed."""

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.builders.pods import pod
from tests.cluster.api import wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.installation import Installation, installation
from tests.fakes.pki import Authority

OURS, THEIRS = Authority("reviews"), Authority("others")
PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation whose API server has a certificate for webhooks."""
    configuration = written(tmp_path_factory.mktemp("reviews"))
    flags = [f"--admission-control-config-file={configuration}"]
    settings = Settings(api_server_flags=flags)
    folder = tmp_path_factory.mktemp("callers")
    with installation(programs, folder, settings=settings) as found:
        yield found


def written(folder: Path) -> Path:
    """Write what the API server shows to webhooks, as docs/certificates.md says."""
    issued = OURS.issue("api-server")
    user = {"client-certificate": str(folder / "tls.crt"), "client-key": str(folder / "tls.key")}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "*", "user": user}],  # registrations of tests name a URL, no Service
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / "kubeconfig"),
    }
    plugins = [{"name": name, "configuration": configuration} for name in PLUGINS]
    whole = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    for name, text in {
        "tls.crt": issued.certificate.decode(),
        "tls.key": issued.key.decode(),
        "kubeconfig": json.dumps(kubeconfig),
        "admission": json.dumps({**whole, "plugins": plugins}),
    }.items():
        (folder / name).write_text(text)
    return folder / "admission"


def configure(site: Installation, *, authority: Authority | None, sources: Sequence[str]) -> None:
    """Demand this of callers, on connections and sessions that begin now."""
    text = json.dumps(
        {
            "reviewClientCA": "" if authority is None else authority.certificate.decode(),
            "reviewSources": list(sources),
        }
    )
    site.configure(text)
    wait_for(lambda: site.first.obeys(text))
    site.first.process.stop()
    site.first.process.start(lambda: site.first.get("/readyz")[0] == 200, within=60)


@pytest.mark.parametrize(
    ("authority", "sources", "shown"),
    [
        pytest.param(OURS, [], ["certificate"], id="certificate"),
        pytest.param(None, ["10.0.0.0/8", "127.0.0.0/8"], ["source"], id="source"),
        pytest.param(OURS, ["127.0.0.1"], ["certificate", "source"], id="both"),
        pytest.param(None, [], [], id="neither"),
    ],
)
def test_the_api_server_is_answered(
    site: Installation, *, authority: Authority | None, sources: list[str], shown: list[str]
) -> None:
    """And the records of its reviews say what it showed."""
    configure(site, authority=authority, sources=sources)
    namespace = site.namespace()

    wait_for(lambda: not site.refusal(namespace, pod()))
    site.create(namespace, pod())

    recorded = wait_for(
        lambda: [each for each in site.first.records() if each.get("namespace") == namespace]
    )
    assert [each["caller"] for each in recorded] == [shown] * len(recorded)


def test_who_has_no_certificate_is_not_answered(site: Installation) -> None:
    """Whatever path it calls, it comes no further than the handshake."""
    configure(site, authority=OURS, sources=[])

    with pytest.raises((ssl.SSLError, ConnectionError)):
        site.first.review("/mutate/pods", b"")


@pytest.mark.parametrize(
    ("authority", "sources"),
    [
        pytest.param(THEIRS, [], id="another-authority"),
        pytest.param(None, ["10.0.0.0/8"], id="not-listed"),
    ],
)
def test_an_api_server_that_is_not_known_creates_no_pod(
    site: Installation, authority: Authority | None, sources: list[str]
) -> None:
    """The pod's user reads that the webhook could not be called."""
    configure(site, authority=authority, sources=sources)

    assert "failed calling webhook" in site.refusal(site.namespace(), pod())
