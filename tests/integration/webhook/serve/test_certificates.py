"""`vgpu certs` where it cannot do what it is asked; what it does is tried on a real API server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from vgpu import main

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


class Nothing(BaseHTTPRequestHandler):
    """An API server that has none of our objects, and answers whoever may read no Secret."""

    status = 404

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Forbidden(Nothing):
    status = 403


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield how to reach a server whose handler is the indirect parameter."""
    with HTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        config = tmp_path / "config"
        config.write_text(CONFIG.format(port=server.server_port))
        yield config
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["status"], "none does not exist; name a file with", id="outside-a-pod"),
        pytest.param(["rotate", "both"], "'both' is not one of 'leaf', 'ca'", id="neither"),
        pytest.param(["rotate"], "Missing argument", id="nothing-to-rotate"),
    ],
)
def test_a_mistake_is_told(arguments: list[str], words: str) -> None:
    """Without a traceback, and with what would do."""
    result = CliRunner().invoke(
        main, ["certs", *arguments], env={"KUBERNETES_SERVICE_HOST": "", "KUBECONFIG": "/none"}
    )

    assert result.exit_code != 0
    assert words in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("kubeconfig", [Nothing], indirect=True)
def test_before_the_first_installation_there_is_nothing(kubeconfig: Path) -> None:
    """Status says so, and a rotation is not requested of nobody."""
    option = f"--kubeconfig={kubeconfig}"

    told = CliRunner().invoke(main, ["certs", "status", option])
    asked = CliRunner().invoke(main, ["certs", "rotate", "leaf", option])

    assert "phase       empty" in told.output
    assert told.output.count("does not exist, skipped") == 2
    assert asked.exit_code == 1
    assert asked.output.startswith("Error: the Secret does not exist yet")


@pytest.mark.parametrize("command", [["status"], ["rotate", "ca"]], ids=["status", "rotate"])
@pytest.mark.parametrize("kubeconfig", [Forbidden], indirect=True)
def test_a_missing_right_is_told(kubeconfig: Path, command: list[str]) -> None:
    """The call that was refused is named."""
    result = CliRunner().invoke(main, ["certs", *command, f"--kubeconfig={kubeconfig}"])

    assert result.exit_code == 1
    assert result.output.startswith("Error: GET /api")
    assert ": 403 " in result.output


@pytest.mark.parametrize("kubeconfig", [Nothing], indirect=True)
def test_the_commands_read_what_kubectl_reads(kubeconfig: Path, tmp_path: Path) -> None:
    """``$KUBECONFIG`` may name several files, of which some do not exist."""
    files = f"{tmp_path / 'none'}:{kubeconfig}"

    told = CliRunner().invoke(
        main, ["certs", "status"], env={"KUBERNETES_SERVICE_HOST": "", "KUBECONFIG": files}
    )

    assert (told.exit_code, "phase       empty" in told.output) == (0, True)


@pytest.mark.parametrize(
    "user",
    [
        pytest.param("{exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}}"),
        pytest.param("{auth-provider: {name: gcp}}"),
    ],
)
@pytest.mark.parametrize("kubeconfig", [Nothing], indirect=True)
def test_a_login_by_a_program_is_refused_with_a_way_out(kubeconfig: Path, user: str) -> None:
    """The image has no package that could start it; a pod of the webhook needs no login."""
    kubeconfig.write_text(kubeconfig.read_text().replace("user: {}", f"user: {user}"))

    told = CliRunner().invoke(main, ["certs", "status", f"--kubeconfig={kubeconfig}"])

    assert told.exit_code == 1
    assert "user 'u' authenticates with a program" in told.output
    assert "kubectl -n vgpu-admission-system exec deployment/vgpu-webhook" in told.output
