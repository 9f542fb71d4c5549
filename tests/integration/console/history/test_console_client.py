"""The console asked from a terminal: whom a person's credentials go to, and who they are."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.console_server import NAME
from tests.fakes.pki import Authority, Issued
from tests.integration.console.history.terminal import Terminal, play

EXEC = "client.authentication.k8s.io/v1"


def exec_user(status: Mapping[str, str]) -> dict[str, object]:
    """Return a user of a kubeconfig whose plugin prints *status*."""
    printed = json.dumps({"apiVersion": EXEC, "kind": "ExecCredential", "status": status})
    program = ["-c", f"print({printed!r})"]
    return {"exec": {"apiVersion": EXEC, "command": sys.executable, "args": program}}


def encoded(issued: Issued) -> dict[str, object]:
    return {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }


def running(program: str) -> bool:
    """Return whether a process was started with *program*."""
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True, text=True)
    return program in shown.stdout


@pytest.mark.parametrize("kind", ["token", "token-file", "exec", "exec-certificate", "certificate"])
def test_the_credentials_of_the_kubeconfig_say_who_asks(kind: str, tmp_path: Path) -> None:
    """Whatever a person logs in to the cluster with, the console gets it, and nothing else."""

    async def scenario(machine: Terminal) -> None:
        issued = machine.console.clients.issue("bo")
        (tmp_path / "token").write_text("secret\n")
        pem = {
            "clientCertificateData": issued.certificate.decode(),
            "clientKeyData": issued.key.decode(),
        }
        logins: dict[str, tuple[Mapping[str, object], str]] = {
            "token": ({"token": "secret"}, "amy"),
            "token-file": ({"tokenFile": "token"}, "amy"),
            "exec": (exec_user({"token": "secret"}), "amy"),
            "exec-certificate": (exec_user(pem), "bo"),
            "certificate": (encoded(issued), "bo"),
        }
        user, person = logins[kind]

        done = await machine.run("decisions", user=user)

        assert (done.exit_code, done.stderr) == (0, "")
        assert [asked.person for asked in machine.console.asked] == [person]
        assert "big-5d8f7b-" in done.stdout
        assert machine.console.asked[0].query["namespace"] == "team-nlp"

    play(tmp_path, scenario)


def test_the_port_forward_is_that_of_the_kubeconfig_and_ends(tmp_path: Path) -> None:
    """It leads to the Service on loopback only, and nothing is left running."""

    async def scenario(machine: Terminal) -> None:
        config = tmp_path / "config"
        done = await machine.run("who", "--context=here", f"--kubeconfig={config}")

        assert done.exit_code == 0
        (call,) = machine.calls()
        assert call == (
            "port-forward --namespace=vgpu-admission-system --address=127.0.0.1 --context=here"
            f" service/vgpu-console :8444 {config}"
        )
        assert not await asyncio.to_thread(running, str(tmp_path / "kubectl"))

    play(tmp_path, scenario)


def test_a_console_with_a_certificate_of_others_gets_no_token(tmp_path: Path) -> None:
    """Whoever took the place of the console learns nothing."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("decisions")

        assert done.exit_code == 1
        assert "certificate verify failed" in done.stderr
        assert machine.console.hellos == []

    play(tmp_path, scenario, issuer=Authority("vgpu"))


def test_a_certificate_of_ours_for_another_name_gets_no_token(tmp_path: Path) -> None:
    """A stolen key of an agent does not make a console."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("decisions")

        assert done.exit_code == 1
        assert f"Hostname mismatch, certificate is not valid for '{NAME}'" in done.stderr
        assert machine.console.hellos == []

    play(tmp_path, scenario, name="vgpu-webhook.vgpu-admission-system.svc")


@pytest.mark.parametrize("cluster", ["insecure", "http"])
def test_the_word_of_an_unverified_api_server_is_worth_nothing(
    cluster: str, tmp_path: Path
) -> None:
    """It could name any authority; a file of the person's own is believed."""

    async def scenario(machine: Terminal) -> None:
        entry: dict[str, object] = {"server": machine.api.url, "insecure-skip-tls-verify": True}
        if cluster == "http":
            entry = {"server": machine.api.url.replace("https", "http")}
        authorities = tmp_path / "ca.crt"
        authorities.write_bytes(machine.console.ours.certificate)

        refused = await machine.run("decisions", cluster=entry)
        given = await machine.run("decisions", f"--console-ca={authorities}", cluster=entry)

        assert refused.exit_code == 1
        assert "is worth nothing; accepted: --console-ca FILE" in refused.stderr
        assert (given.exit_code, given.stderr) == (0, "")
        assert machine.console.hellos == ["Bearer secret"]

    play(tmp_path, scenario)


def test_an_address_is_verified_by_the_authorities_that_are_given(tmp_path: Path) -> None:
    """With --console no port is forwarded and no ConfigMap is read."""

    async def scenario(machine: Terminal) -> None:
        url = f"https://localhost:{machine.console.port}/"
        authorities = tmp_path / "ca.crt"
        authorities.write_bytes(machine.console.ours.certificate)

        given = await machine.run("records", f"--console={url}", f"--console-ca={authorities}")
        without = await machine.run("records", f"--console={url}")

        assert (given.exit_code, given.stderr) == (0, "")
        assert without.exit_code == 1
        assert "certificate verify failed" in without.stderr
        assert machine.console.hellos == ["Bearer secret"]
        assert machine.calls() == []

    play(tmp_path, scenario, published=False)


@pytest.mark.parametrize(
    "url",
    [
        *("http://localhost:1", "localhost:8444", "https://", "https://a:99999", "https://a:0"),
        *("https://u:p@a", "https://a/?next=b", "ftp://a", "https://[::1"),
    ],
)
def test_credentials_go_to_no_address_but_one_of_https(url: str, tmp_path: Path) -> None:
    """A typing error must not send a token in the clear."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("decisions", f"--console={url}")

        assert done.exit_code == 1
        assert "is not where your credentials may go; accepted: https://HOST:PORT" in done.stderr

    play(tmp_path, scenario)


def test_nobody_asks_as_somebody_else(tmp_path: Path) -> None:
    """The console would see the person's own credentials, and answer for the wrong one."""

    async def scenario(machine: Terminal) -> None:
        for how, user in (
            (["--as=bo"], {"token": "secret"}),
            ([], {"token": "secret", "as": "bo"}),
        ):
            done = await machine.run("decisions", *how, user=user)

            assert done.exit_code == 1
            assert "accepted: no --as, and no `as` in the kubeconfig" in done.stderr
        assert machine.console.hellos == []

    play(tmp_path, scenario)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """No console, no kubectl, no right: each error says what would help."""

    async def scenario(machine: Terminal) -> None:
        machine.forward = False
        no_service = await machine.run("decisions")
        machine.variables["PATH"] = str(tmp_path / "nowhere")
        no_kubectl = await machine.run("decisions")

        assert no_service.exit_code == no_kubectl.exit_code == 1
        assert 'services "vgpu-console" not found; the console is a comp' in no_service.stderr
        assert "kubectl is not on the path" in no_kubectl.stderr

    play(tmp_path, scenario)


def test_a_cluster_without_a_console_says_so(tmp_path: Path) -> None:
    """The ConfigMap with the console's authority is missing where no console is."""

    async def scenario(machine: Terminal) -> None:
        done = await machine.run("decisions")

        assert done.exit_code == 1
        assert "the ConfigMap vgpu-console-ca does not exist" in done.stderr

    play(tmp_path, scenario, published=False)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "not an answer that this version knows: JSON is malformed"),
        (b'{"rows": 1}', "Expected `array`, got `int`"),
        (b"", "not an answer that this version knows"),
        (b"[" * 100_000, "not an answer that this version knows"),
        (b'{"rows": [{"digest": "\xff"}]}', "not an answer that this version knows"),
    ],
    ids=["page", "type", "empty", "deep", "binary"],
)
def test_an_answer_of_something_else_is_an_error(body: bytes, text: str, tmp_path: Path) -> None:
    """No traceback, whatever answers."""

    async def scenario(machine: Terminal) -> None:
        machine.console.broken = body

        done = await machine.run("decisions")

        assert (done.exit_code, done.stdout) == (1, "")
        assert text in done.stderr

    play(tmp_path, scenario)


def test_a_refusal_of_the_console_is_quoted_and_steers_no_terminal(tmp_path: Path) -> None:
    """Its text is that of whoever answers."""

    async def scenario(machine: Terminal) -> None:
        unknown = await machine.run("decisions", "nothing\x1b[2J")
        stranger = await machine.run("decisions", user={"token": "other"})

        assert unknown.exit_code == stranger.exit_code == 1
        assert "Error from the console (404): no decision " in unknown.stderr
        assert "\x1b" not in unknown.stderr
        assert stranger.stderr == "Error from the console (401): nobody was authenticated\n"

    play(tmp_path, scenario)
