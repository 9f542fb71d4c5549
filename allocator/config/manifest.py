"""Manifests: YAML or JSON as users write it, and its pods as the API server sends them on."""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import msgspec
import orjson

from allocator.config.document import (
    MAX_BYTES,
    DocumentError,
    DocumentTable,
    Notes,
    explain_error,
    read_document,
)
from allocator.config.pod_templates import ACCEPTED, VOLCANO, TemplateSite, template_sites
from allocator.model.problem import Loaded, Problem, Rejected
from allocator.model.untrusted import quote
from allocator.request.quantity import canonical, parse, parse_plain

Json = dict[str, Any]
P = TypeVar("P")
MOST_DOCUMENTS: Final = 512
DEFAULT_NAMESPACE: Final = "default"
# By the YAML specification a line that begins so ends a document, even inside a scalar.
_MARKER: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_MISMATCH: Final = re.compile(
    r"Expected `(?P<accepted>[^`]+)`, got `(?P<found>[^`]+)`.*", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPod(Generic[P]):
    """A pod that a manifest would create."""

    kind: str  # of the object that creates it
    name: str  # of the object that creates it
    place: str  # in the manifest, such as "document 2: spec.template"
    sent: Json  # as the API server would send it to a hook
    pod: P  # the same, decoded
    object: str = ""  # the place of the object that creates it, such as "document 2"
    wanted: int = 1  # pods of this template at the same time
    needed: int = 1  # of these, how many must run at the same time
    together: int = 1  # how many pods of all templates of the object must

    @property
    def namespace(self) -> str:
        """Return the namespace it would be created in."""
        return str(self.sent["metadata"]["namespace"])


def pods_in(
    text: str, kind: type[P], *, namespace: str = DEFAULT_NAMESPACE, needed: bool = True
) -> Loaded[tuple[ManifestPod[P], ...]] | Rejected:
    """Return the pods that the documents in *text* would make, one for each template.

    Each is decoded as the msgspec type *kind*; *namespace* is for objects that name none.
    Documents of other kinds are skipped with a warning; a text without any pod is rejected where
    one is *needed*.
    """
    notes = Notes()
    pods = tuple(_manifest_pods(text, _Reading(kind=kind, namespace=namespace, notes=notes)))
    if notes.errors:
        return Rejected(tuple(notes.errors))
    if not pods and needed:
        empty = Problem(path="manifest", what="no document found", accepted=ACCEPTED)
        return Rejected(tuple(notes.warnings) or (empty,))
    return Loaded(value=pods, warnings=tuple(notes.warnings))


def first_pods(
    text: str, kind: type[P], *, namespace: str, most: int
) -> tuple[ManifestPod[P], ...]:
    """Return at most the first *most* pods of :func:`pods_in`, none where one cannot be read."""
    notes = Notes()
    reading = _Reading(kind=kind, namespace=namespace, notes=notes)
    pods = tuple(islice(_manifest_pods(text, reading), most))
    return () if notes.errors else pods


def apply_defaults(written: Json) -> Json:
    """Return a pod as the API server sends it to a hook: amounts canonical, requests defaulted."""
    document = copy.deepcopy(written)
    spec = document.get("spec")
    for kind in ("initContainers", "containers"):
        for item in _mappings(spec, kind):
            resources = item.get("resources")
            if isinstance(resources, dict):
                _default_amounts(resources)
    return document


def _mappings(holder: object, key: str) -> list[Json]:
    items = holder.get(key) if isinstance(holder, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _default_amounts(resources: Json) -> None:
    for side in ("limits", "requests"):
        amounts = resources.get(side)
        if isinstance(amounts, dict):
            resources[side] = {name: _amount(value) for name, value in amounts.items()}
    limits, requests = resources.get("limits"), resources.get("requests")
    if isinstance(limits, dict) and isinstance(requests, dict | None):
        resources["requests"] = {**limits, **(requests or {})}


def _amount(value: object) -> object:
    """Return *value* in canonical form where that is a plain number; others are kept."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    digits = parse_plain(value) if isinstance(value, str) else None
    if digits is not None:
        return canonical(digits)
    quantity = parse(str(value))
    plain = quantity is not None and not quantity.fraction and not quantity.unit
    return canonical(int(quantity.value)) if quantity is not None and plain else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading(Generic[P]):
    """How the pods of one manifest are read."""

    kind: type[P]  # decoded as this
    namespace: str  # for objects that name none
    notes: Notes  # defects found so far


def _manifest_pods(text: str, reading: _Reading[P]) -> Iterator[ManifestPod[P]]:
    notes = reading.notes
    if len(text.encode()) > MAX_BYTES:
        notes.error("manifest", "too large", f"at most {MAX_BYTES} bytes")
        return
    for number, chunk in enumerate(_chunks(text), start=1):
        place = f"document {number}"
        if number > MOST_DOCUMENTS:
            notes.error(place, "too many documents", f"at most {MOST_DOCUMENTS}")
            return
        document = _read(chunk, place, notes)
        if document is not None:
            yield from _objects(document, place, reading)


def _chunks(text: str) -> Iterator[str]:
    """Yield the documents of *text*, each after as many empty lines as there are lines before it.

    So the line numbers in a parser's message are those of the whole text.
    """
    marks = list(_MARKER.finditer(text))
    begins = [0, *(mark.end() for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    for begin, end in zip(begins, ends, strict=True):
        if begin or not marks or _has_content(text[:end]):
            yield "\n" * text.count("\n", 0, begin) + text[begin:end]


def _has_content(start: str) -> bool:
    """Say whether *start*, the text before the first marker, is more than comments."""
    lines = (line.strip() for line in start.splitlines())
    return any(line and not line.startswith("#") for line in lines)


def _read(chunk: str, place: str, notes: Notes) -> object:
    """Return the value of *chunk* as JSON has it; ``None`` for an empty or unreadable one."""
    try:
        return orjson.loads(orjson.dumps(read_document(chunk)))
    except DocumentError as error:
        what = str(error).replace(' in "<unicode string>"', "")
        notes.error(place, what, "one YAML or JSON object")
    except TypeError as error:  # YAML has sets, bytes and keys of every type
        notes.error(place, f"not expressible in JSON: {error}", "one YAML or JSON object")
    return None


def _objects(document: object, place: str, reading: _Reading[P]) -> Iterator[ManifestPod[P]]:
    """Yield the pods of one object, or of each object in a ``List``."""
    own = Notes()
    table = DocumentTable.of(document, "", own)
    if not own.errors:
        yield from _of_kind(table, place, reading)
    _add_problems(own, place, reading.notes)


def _of_kind(table: DocumentTable, place: str, reading: _Reading[P]) -> Iterator[ManifestPod[P]]:
    version, kind = table.text("apiVersion"), table.text("kind")
    if (version, kind) == ("v1", "List"):
        for index, item in enumerate(table.items("items")):
            yield from _objects(item, f"{place}: items[{index}]", reading)
        return
    sites = template_sites(table, version.rpartition("/")[0], kind)
    if sites is None:
        what = f"{quote(kind)} of {quote(version)} is not a kind that creates pods"
        table.notes.warning("", what, ACCEPTED)
    else:
        yield from _of_owner(table, sites, place, reading=reading)


def _add_problems(own: Notes, place: str, notes: Notes) -> None:
    """Add the defects of one object to *notes*, with its place."""
    for note, problems in ((notes.error, own.errors), (notes.warning, own.warnings)):
        for problem in problems:
            where = place if problem.path in {"", "document"} else f"{place}: {problem.path}"
            note(where, problem.what, problem.accepted)


def _of_owner(
    owner: DocumentTable, sites: Sequence[TemplateSite], place: str, *, reading: _Reading[P]
) -> Iterator[ManifestPod[P]]:
    metadata = DocumentTable.of(owner.values.get("metadata"), "metadata", owner.notes)
    generated = "name" not in metadata.values and "generateName" in metadata.values
    name = metadata.text("generateName" if generated else "name")
    namespace = metadata.text("namespace", reading.namespace)
    for site in sites:
        template = site.table
        own = template.values.get("metadata") or {}
        template_metadata = DocumentTable.of(own, template.at("metadata"), owner.notes).values
        generated_name = {"generateName": f"{name}-"} if template is not owner else {}
        sent = apply_defaults(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**template_metadata, **generated_name, "namespace": namespace},
                "spec": _spec(owner, template),
            }
        )
        pod = _convert(sent, template, reading.kind)
        if pod is not None:
            where = f"{place}: {template.path}" if template.path else place
            yield ManifestPod(
                kind=owner.text("kind"),
                name=name,
                place=where,
                sent=sent,
                pod=pod,
                object=place,
                wanted=site.wanted,
                needed=site.needed,
                together=site.together,
            )


def _spec(owner: DocumentTable, template: DocumentTable) -> Json:
    """Return the pod's spec; Volcano names its own scheduler where a job of its names none."""
    spec = DocumentTable.of(template.values.get("spec"), template.at("spec"), template.notes)
    spec.tables("containers", required=True)
    values = dict(spec.values)
    volcano = owner.text("apiVersion").startswith(f"{VOLCANO}/")
    if volcano and not values.get("schedulerName"):
        outer = DocumentTable.of(owner.values.get("spec"), "spec", owner.notes)
        values["schedulerName"] = outer.text("schedulerName", "volcano")
    return values


def _convert(sent: Json, template: DocumentTable, kind: type[P]) -> P | None:
    """Return the decoded pod; ``None``, with an error noted, where something is wrong with it."""
    if template.notes.errors:
        return None
    try:
        # Not converted: a kind may keep parts of itself as JSON.
        return msgspec.json.decode(msgspec.json.encode(sent), type=kind)
    except msgspec.ValidationError as error:
        problem = explain_error(error, sent)
        template.notes.error(template.at(problem.path), problem.what, problem.accepted)
        return None
