"""What an API server remembers: objects, versions, and the changes a watch can still be told."""

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jsonpatch

from tests.fakes.api_rules import Json, RefusedError, check


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path taken apart; an empty ``name`` is the collection."""

    prefix: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def collection(self) -> tuple[str, str]:
        return self.prefix, self.resource

    def holds(self, other: "Place") -> bool:
        """Say whether a list or watch at this place shows the object at *other*."""
        return (
            self.collection == other.collection
            and self.namespace in ("", other.namespace)
            and self.name in ("", other.name)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    version: int
    type: str
    place: Place
    object: Json


def parsed(path: str) -> Place:
    """Take ``/api/v1/…`` or ``/apis/GROUP/VERSION/…`` apart; a subresource is ignored."""
    parts = path.strip("/").split("/")
    cut = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:cut]), parts[cut:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return Place(
        prefix=prefix, resource=rest[0], namespace=namespace, name=rest[1] if rest[1:] else ""
    )


class Objects:
    """Every write gets the next resource version; one that changes nothing gets none."""

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        self.kept: dict[Place, Json] = {}
        self.changes: list[Change] = []
        self.told: list[Callable[[Change], None]] = []
        self._uids = itertools.count(1)

    def compact(self) -> None:
        """Forget the past, as etcd does every five minutes."""
        self.compacted = self.version
        self.changes.clear()

    def at(self, place: Place) -> list[Json]:
        """Return the objects at *place* in the order of a list: by namespace and name."""
        found = [p for p in self.kept if place.holds(p)]
        return [self.kept[p] for p in sorted(found, key=lambda p: (p.namespace, p.name))]

    def since(self, version: int) -> Iterator[Change]:
        return (change for change in self.changes if change.version > version)

    def read(self, place: Place) -> Json:
        if place not in self.kept:
            raise RefusedError(404, "NotFound", f'{place.resource} "{place.name}" not found')
        return self.kept[place]

    def create(self, place: Place, new: Json, *, dry_run: bool = False) -> Json:
        """Store *new* in the collection *place*, or at it."""
        meta = new.setdefault("metadata", {})
        place = _named(place, place.name or meta["name"])
        if place in self.kept:
            raise RefusedError(
                409, "AlreadyExists", f'{place.resource} "{place.name}" already exists'
            )
        if place.namespace:
            meta["namespace"] = place.namespace
        meta |= {"uid": f"uid-{next(self._uids)}", "generation": 1}
        check(place.collection, new, None)
        return new if dry_run else self._store("ADDED", place, new)

    def replace(self, place: Place, new: Json, *, dry_run: bool = False) -> Json:
        old = self.read(place)
        meta = new.setdefault("metadata", {})
        if meta.get("resourceVersion", _version(old)) != _version(old):
            raise RefusedError(
                409, "Conflict", f'cannot update {place.resource} "{place.name}": it has changed'
            )
        if meta.get("uid") not in (None, "", old["metadata"]["uid"]):
            raise RefusedError(409, "Conflict", "the UID in the precondition does not match")
        meta |= {k: old["metadata"][k] for k in ("uid", "generation", "resourceVersion")}
        check(place.collection, new, old)
        if new == old or dry_run:
            return new
        if new.get("spec") != old.get("spec"):
            meta["generation"] += 1
        return self._store("MODIFIED", place, new)

    def patch(self, place: Place, media: str, body: bytes, *, dry_run: bool = False) -> Json:
        """Apply a patch of *media* type; no field ownership is kept."""
        change = json.loads(body)
        if media.startswith("application/apply-patch") and place not in self.kept:
            return self.create(place, change, dry_run=dry_run)
        old = copy.deepcopy(self.read(place))
        if media.startswith("application/json-patch"):
            new = _json_patched(old, change)
        else:
            new = _merged(old, change)
        return self.replace(place, new, dry_run=dry_run)

    def bind(self, place: Place, binding: Json) -> Json:
        """Set a pod's node as the registry of pods does, hooks apart; it knows no Nodes."""
        found = copy.deepcopy(self.read(place))
        meta, spec, claimed = found["metadata"], found["spec"], binding["metadata"].get("uid")
        if claimed and claimed != meta["uid"]:
            raise RefusedError(409, "Conflict", "the UID in the precondition does not match")
        if meta.get("deletionTimestamp") or spec.get("nodeName") or spec.get("schedulingGates"):
            told = "is being deleted, is already assigned to a node or has scheduling gates"
            raise RefusedError(409, "Conflict", f'pod "{place.name}" {told}')
        spec["nodeName"] = binding["target"]["name"]
        meta.setdefault("annotations", {}).update(binding["metadata"].get("annotations") or {})
        self.replace(place, found)
        return {"kind": "Status", "status": "Success"}

    def delete(self, place: Place) -> Json:
        old = copy.deepcopy(self.read(place))
        if old["metadata"].get("finalizers"):
            old["metadata"].setdefault("deletionTimestamp", "2026-11-21T17:00:00Z")
            return self.replace(place, old)
        return self._store("DELETED", place, old)

    def _store(self, kind: str, place: Place, new: Json) -> Json:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self.kept[place]
        else:
            self.kept[place] = new
        change = Change(version=self.version, type=kind, place=place, object=copy.deepcopy(new))
        self.changes.append(change)
        for tell in self.told:
            tell(change)
        return new


def _named(place: Place, name: str) -> Place:
    return Place(prefix=place.prefix, resource=place.resource, namespace=place.namespace, name=name)


def _version(stored: Json) -> str:
    return str(stored["metadata"]["resourceVersion"])


def _json_patched(old: Json, ops: Any) -> Json:  # noqa: ANN401 - any JSON
    try:
        patched: Json = jsonpatch.apply_patch(old, ops)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise RefusedError(
            422, "Invalid", "the server rejected our request due to an error in our request"
        ) from error
    return patched


def _merged(old: Any, change: Any) -> Any:  # noqa: ANN401 - any JSON
    """RFC 7386."""
    if not isinstance(change, dict):
        return change
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
