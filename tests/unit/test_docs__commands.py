"""Commands on the pages can be pasted: they parse, and name what is in the manifests."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import jsonpatch
import pytest
import yaml

import vgpu
from allocator.config.settings import settings_of
from console.cli.kubectl_vgpu import cli
from tests.unit.manifests.test_written import BASE, MANIFESTS, objects
from tests.unit.test_docs import DOCS, PACKAGES, PAGES, ROOT

ALL = [*PAGES, ROOT / "CONTRIBUTING.md"]
PIPES = frozenset({"|", "||", "&&", ">", ";"})
NEGATED = frozenset({"!", "while", "do", "for", "test", "done"})
VERBS = frozenset(
    {
        "annotate", "apply", "cordon", "create", "delete", "describe", "drain", "exec", "explain",
        "get", "label", "logs", "patch", "port-forward", "rollout", "top", "uncordon", "wait",
    }
)  # fmt: skip
OBJECTS = {
    f"{item['kind'].lower()}/{item['metadata']['name']}"
    for kind in ("Deployment", "DaemonSet", "Service")
    for folder in (BASE, MANIFESTS / "components/console")
    for item in objects(kind, folder)
}
SHORT = {"ds": "daemonset", "deploy": "deployment", "svc": "service"}


def blocks(page: Path) -> Iterator[str]:
    """Yield the blocks of commands: those without a language."""
    for language, text in re.findall(r"(?ms)^ *```(\w*)\n(.*?)^ *```$", page.read_text()):
        if not language:
            yield text.replace("\\\n", " ")


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command on *page*, up to a pipe; also those within sentences."""
    for text in blocks(page):
        for line in text.splitlines():
            yield from _split(line)
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())
    for text in re.findall(r"`((?:kubectl|vgpu) [^`\[…]+)`", prose):
        yield from _split(" ".join(text.split()))


def _split(line: str) -> Iterator[list[str]]:
    if not re.search(r"\b(?:kubectl|vgpu) ", line) or "[" in re.sub(r"'[^']*'", "", line):
        return
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quotation that goes on in the next line
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if word in PIPES:
            if part and Path(part[0]).name in {"kubectl", "vgpu"}:
                yield [Path(part[0]).name, *part[1:]]
            part = []
        elif word not in NEGATED:
            part.append(word)


def parse(command: click.Command, name: str, arguments: Sequence[str]) -> None:
    """Parse *arguments* without running anything; raises ``click.UsageError``."""
    context = command.make_context(name, list(arguments))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]  # noqa: SLF001 -- where click keeps them
        word, chosen, rest = context.command.resolve_command(context, rest)
        assert chosen is not None
        context = chosen.make_context(word, rest, parent=context)


def found(*beginning: str) -> list[tuple[str, list[str]]]:
    """Return the commands that begin so, with the name of their page."""
    length = len(beginning)
    return [
        (page.name, words)
        for page in ALL
        for words in commands(page)
        if tuple(words[:length]) == beginning
    ]


def said(case: tuple[str, list[str]]) -> str:
    return f"{case[0]}:{' '.join(case[1])}"


PLUGIN = found("kubectl", "vgpu")
PROGRAMS = found("vgpu")
KUBECTL = [case for case in found("kubectl") if case[1][1:2] != ["vgpu"]]


def test_there_are_commands_to_check() -> None:
    """A pattern that finds nothing proves nothing."""
    assert len(PLUGIN) > 25
    assert len(PROGRAMS) > 20
    assert len(KUBECTL) > 60


@pytest.mark.parametrize("case", PLUGIN, ids=said)
def test_a_command_of_the_plugin_parses(case: tuple[str, list[str]]) -> None:
    """An option that does not exist is found here, not by a reader."""
    rest = case[1][2:]

    if len(rest) > 1:  # a name alone stands for the command
        parse(cli, "kubectl vgpu", rest)


@pytest.mark.parametrize("case", PROGRAMS, ids=said)
def test_a_program_parses(case: tuple[str, list[str]]) -> None:
    """The same for `vgpu plan`, `vgpu doctor` and the others."""
    name, *rest = case[1][1:]
    required = {"plan": ["--fleet=f", "-f", "p"], "agent": ["--node-name=n"]}
    required["relay"] = ["--node-name=n", "--relay-dir=/run/r"]

    if not {"--help", "--version"} & {name, *rest}:
        parse(vgpu.program(name), name, [*rest, *required.get(name, [])])


@pytest.mark.parametrize("case", KUBECTL, ids=said)
def test_a_command_of_kubectl_names_what_there_is(case: tuple[str, list[str]]) -> None:
    """The verb, our namespaces, our objects, and the folders of the repository."""
    words = case[1]
    text = " ".join(words)

    options = re.match(r"(?:(?:-n|--namespace) \S+ )*", " ".join(words[1:]))
    assert options is not None
    assert " ".join(words[1:])[options.end() :].split(" ")[0] in VERBS
    ours = re.findall(r"(?:-n|--namespace)[ =](vgpu-\S+)", text)
    assert set(ours) <= {"vgpu-admission-system", "vgpu-admission-agents"}
    for kind, name in re.findall(r"\b(deployment|daemonset|deploy|ds|svc)[/ ](vgpu-\S+)", text):
        assert f"{SHORT.get(kind, kind)}/{name}" in OBJECTS
    for path in re.findall(r"\bmanifests/[\w./-]+", text):
        assert path == "manifests/mine" or (ROOT / path).exists()


def test_every_question_has_a_command() -> None:
    """An answer that cannot be tried helps nobody."""
    page = (DOCS / "troubleshooting.md").read_text()
    sections = re.split(r"(?m)^## ", page)[1:]

    assert len(sections) >= 21
    assert [text.splitlines()[0] for text in sections if "\n```\nkubectl " not in text] == []


def searches() -> Iterator[tuple[str, str]]:
    """Yield what commands search for in our logs, with the name of the page."""
    for page in ALL:
        for text in blocks(page):
            yield from (
                (page.name, phrase)
                for phrase in re.findall(r"(?m)^kubectl .*\blogs\b.*\| grep '(.+)'$", text)
            )


def test_what_is_searched_for_in_logs_is_written_there() -> None:
    """A phrase that no program logs is never found."""
    sources = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    text = "".join(path.read_text() for path in sources)
    phrases = set(searches())

    assert len(phrases) >= 4
    assert [place for place in phrases if f'"{place[1].strip(chr(34))}"' not in text] == []


def patches() -> Iterator[tuple[str, str]]:
    """Yield each patch of the agent on the page about installing."""
    page = (DOCS / "install.md").read_text()
    for text in re.findall(r"(?ms)^ *```yaml\n(.*?)^ *```$", page):
        document = yaml.safe_load(text)
        for patch in document.get("patches", ()) if isinstance(document, dict) else ():
            assert patch["target"] == {"kind": "DaemonSet", "name": "vgpu-agent"}
            yield patch["patch"].split("path: ")[-1].split()[0], patch["patch"]


@pytest.mark.parametrize("patch", [pytest.param(text, id=path) for path, text in patches()])
def test_a_patch_of_the_agent_applies(patch: str) -> None:
    """A path that is not there would end `kubectl apply -k`."""
    (agent,) = objects("DaemonSet")

    changed = jsonpatch.apply_patch(agent, yaml.safe_load(patch))

    assert changed != agent
    assert changed["spec"]["template"]["spec"]["containers"]


def test_the_patch_for_a_read_only_usr_leaves_no_other_folder() -> None:
    """Agent and relay read and write where containers have mounted, and nowhere else."""
    (agent,) = objects("DaemonSet")
    (patch,) = [text for _, text in patches() if "VGPU_HOST_ROOT" in text]

    changed = jsonpatch.apply_patch(agent, yaml.safe_load(patch))["spec"]["template"]["spec"]

    assert "/usr/local/vgpu" not in str(changed)
    for container in changed["containers"]:
        assert {"name": "VGPU_HOST_ROOT", "value": "/var/lib/vgpu"} in container["env"]
        assert {"name": "vgpu", "mountPath": "/var/lib/vgpu"} in container["volumeMounts"]


def test_the_settings_on_the_page_about_installing_are_accepted() -> None:
    """An unknown key would leave the defaults in force."""
    page = (DOCS / "install.md").read_text()
    texts = re.findall(r"(?ms)^ *```yaml\n(.*?)^ *```$", page)

    assert [text for text in texts if text.strip() == "injection: agent"]
    assert settings_of("injection: agent").injection.value == "agent"
    assert [text for text in texts if text.strip() == "hostRoot: /var/lib/vgpu"]
    assert settings_of("hostRoot: /var/lib/vgpu").host_root == "/var/lib/vgpu"
    (generated,) = [text for text in texts if "configMapGenerator" in text]
    base = yaml.safe_load((MANIFESTS / "base/kustomization.yaml").read_text())
    (ours,) = yaml.safe_load(generated)["configMapGenerator"]
    (theirs,) = base["configMapGenerator"]
    assert {**ours, "behavior": None} == {**theirs, "behavior": None}
