"""The demo: the real webhook over TLS, and what its answers look like to a person."""

import json
import re
import signal
import ssl
import subprocess
import time
from contextlib import closing
from http.client import HTTPSConnection
from importlib import resources
from pathlib import Path
from urllib.request import urlopen

import yaml

from tests.integration.webhook.commands import PODS, PROGRAM, ROOT, vgpu
from webhook.plan.hook_client import HOOK


def test_it_sends_every_sample_and_ends_where_nobody_watches() -> None:
    """Without a terminal it is over by itself, and everything was told."""
    done = vgpu("demo")

    assert (done.returncode, done.stderr) == (0, "")
    assert [file.name for file in sorted(PODS.iterdir()) if file.name not in done.stdout] == []
    assert max(map(len, done.stdout.splitlines())) <= 80
    for verdict in ("FITS NOW", "NOT NOW", "NEVER FITS", "REFUSED", "NO REQUEST"):
        assert verdict in done.stdout


def test_a_refusal_is_worded_as_its_reader_meets_it() -> None:
    """From kubectl, which words it by the status, or in the Event of a controller."""
    refused = (PODS / "07-too-much.yaml").read_text()
    controlled = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": yaml.safe_load(refused)["spec"]}},
    }
    done = vgpu("demo", "--once", "-", stdin=f"{refused}\n---\n{json.dumps(controlled)}")

    words = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert 'Error from server (Forbidden): error when creating "standard input": adm' in words
    assert f'Error creating: admission webhook "{HOOK}" denied the request: container' in words


def test_it_stays_for_more_until_it_is_interrupted() -> None:
    """The hint has all that a caller needs, and the temporary files end with the program."""
    file = PODS / "01-three-gigabytes.yaml"
    command = [*PROGRAM, "demo", "--stay", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = ""
        while not (url := re.search(r"^ +https://([^/]+)(/\S+)$", told, re.MULTILINE)):
            told += process.stdout.readline()
            assert process.poll() is None, told
        paths = re.search(r"--cacert (\S+) .*--data @(\S+)", told, re.DOTALL)
        assert paths is not None
        trusting = ssl.create_default_context(cafile=paths[1])
        with closing(HTTPSConnection(url[1], context=trusting, timeout=10)) as connection:
            connection.request("POST", url[2], Path(paths[2]).read_bytes())
            response = json.load(connection.getresponse())["response"]
        pages = re.search(r"^console +(http://127\.0\.0\.1:\d+)/$", told, re.MULTILINE)
        assert pages is not None
        sent = _decisions(pages[1], "team-a")
        told_of_day = _decisions(pages[1], "language")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()

    assert process.returncode == 0
    assert response["allowed"]
    assert "received  team-a/three-gigabytes rewritten" in rest
    assert "three-gigabytes" in sent
    assert "distill" in told_of_day
    assert not Path(paths[1]).parent.exists()


def _decisions(address: str, namespace: str) -> str:
    """Return the page of decisions in a namespace, once it shows some."""
    deadline = time.monotonic() + 10
    while True:
        with urlopen(f"{address}/decisions?namespace={namespace}", timeout=10) as page:  # noqa: S310 -- the demo's
            text: str = page.read().decode()
        if f"{namespace}/" in text or time.monotonic() > deadline:
            return text
        time.sleep(0.1)


def test_a_port_that_is_taken_is_said() -> None:
    """The message names the address; no traceback."""
    done = vgpu("demo", "--once", "--listen", "192.0.2.1:1")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: 192.0.2.1:1: ")
    assert "Traceback" not in done.stderr


def test_the_samples_are_shipped_with_the_package() -> None:
    """An installed program has them; the repository shows them among the manifests."""
    shipped = resources.files("webhook") / "samples" / "pods"

    assert {file.name for file in shipped.iterdir()} == {file.name for file in PODS.iterdir()}


def test_refusals_carry_the_name_of_the_registered_hook() -> None:
    """What the demo shows is what a cluster shows."""
    registrations = (ROOT / "manifests" / "base" / "registrations.yaml").read_text()
    mutating = next(yaml.safe_load_all(registrations))

    assert HOOK in [hook["name"] for hook in mutating["webhooks"]]
