"""Tables of the store and how they came about: one list of statements for each version.

``{id}`` and ``{seq}`` stand for the primary key as a further column of an index, which SQLite adds
to each index by itself. Times are milliseconds since 1970. What lists are filtered by is a number
in the table ``term``; 0 is the empty text. ``decision.last``
orders decisions, and ``record.at`` records.
"""

from typing import Final

# Which columns every index of decisions carries, so that a filter needs no row of the table. Few
# decisions are of one node, which an index of its own finds; the state changes often, and would
# have to be changed in every index.
_FILTERS: Final = "ns, verdict, reason, mode, requester"
FILTER_COLUMNS: Final = tuple(_FILTERS.split(", "))


def _decision_index(name: str, columns: str, where: str = "listed = 1") -> str:
    others = ", ".join(column for column in FILTER_COLUMNS if column not in columns.split(", "))
    return f"CREATE INDEX {name} ON decision ({columns}, last{{id}}, {others}) WHERE {where}"


# About how many bytes of the store a record takes besides its body: other columns, and indexes.
_BESIDE_BODY: Final = 150
RECORD_SIZE: Final = f"length(body) + {_BESIDE_BODY}"  # as :func:`record_size` says it


def record_size(body: bytes) -> int:
    """Return about how many bytes of the store a record takes that has this packed *body*."""
    return len(body) + _BESIDE_BODY


_RECORD_COLUMNS: Final = "seq, id, at, kind, ns, node, decision, sender, body"
_RECORD_INDEXES: Final = (
    "CREATE INDEX record_at ON record (at{seq})",
    "CREATE INDEX record_ns ON record (ns, at{seq}) WHERE ns > 0",
    "CREATE INDEX record_node ON record (node, at{seq}) WHERE node > 0",
    "CREATE INDEX record_decision ON record (decision) WHERE decision IS NOT NULL",
    "CREATE INDEX record_kind ON record (kind, at{seq}, ns) WHERE kind >= 32",
)

VERSIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
        "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        (
            "INSERT INTO counter VALUES ('term', 0), ('decision', 0), ('record', 0),"
            " ('records', 0), ('decisions', 0)"
        ),
        "CREATE TABLE term (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
        "INSERT INTO term VALUES (0, '')",
        (
            "CREATE TABLE decision (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE,"
            " listed INTEGER NOT NULL, ns INTEGER NOT NULL, verdict INTEGER NOT NULL,"
            " reason INTEGER NOT NULL, mode INTEGER NOT NULL, node INTEGER NOT NULL,"
            " state INTEGER NOT NULL, requester INTEGER NOT NULL, last INTEGER NOT NULL,"
            " active INTEGER NOT NULL, waiting INTEGER NOT NULL, waiting_since INTEGER,"
            " bound INTEGER, over INTEGER, mib INTEGER NOT NULL, cores INTEGER NOT NULL,"
            " source INTEGER NOT NULL, digest TEXT NOT NULL, pod TEXT NOT NULL,"
            " owner TEXT NOT NULL, owner_uid INTEGER NOT NULL, body BLOB NOT NULL)"
        ),
        f"CREATE INDEX decision_last ON decision (last{{id}}, {_FILTERS}) WHERE listed = 1",
        _decision_index("decision_ns", "ns"),
        _decision_index("decision_verdict", "verdict"),
        _decision_index("decision_reason", "reason", "listed = 1 AND reason > 0"),
        _decision_index("decision_mode", "mode", "listed = 1 AND mode > 0"),
        _decision_index("decision_node", "node", "listed = 1 AND node > 0"),
        _decision_index("decision_state", "state"),
        _decision_index("decision_requester", "requester", "listed = 1 AND requester > 0"),
        "CREATE INDEX decision_pod ON decision (pod) WHERE pod <> ''",
        "CREATE INDEX decision_owner ON decision (owner) WHERE owner <> ''",
        "CREATE INDEX decision_owner_uid ON decision (owner_uid) WHERE owner_uid <> 0",
        "CREATE INDEX decision_digest ON decision (digest) WHERE digest <> ''",
        (
            "CREATE TABLE record (seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE,"
            " at INTEGER NOT NULL, kind INTEGER NOT NULL, ns INTEGER NOT NULL,"
            " node INTEGER NOT NULL, decision INTEGER, sender INTEGER NOT NULL, body BLOB NOT NULL)"
        ),
        *_RECORD_INDEXES,
        (
            "CREATE TABLE content (digest TEXT NOT NULL, kind INTEGER NOT NULL, seq INTEGER,"
            " used INTEGER NOT NULL, PRIMARY KEY (digest, kind))"
        ),
        (
            "CREATE TABLE workload (uid INTEGER NOT NULL, at INTEGER NOT NULL, id BLOB NOT NULL,"
            " author INTEGER NOT NULL, template INTEGER NOT NULL, owner_uid INTEGER NOT NULL,"
            " PRIMARY KEY (uid, at, id)) WITHOUT ROWID"
        ),
        "CREATE INDEX workload_owner ON workload (owner_uid) WHERE owner_uid <> 0",
        (
            "CREATE TABLE gpu (node TEXT NOT NULL, gpu TEXT NOT NULL, at INTEGER NOT NULL,"
            " id TEXT NOT NULL, healthy INTEGER NOT NULL, PRIMARY KEY (node, gpu))"
        ),
        "CREATE INDEX gpu_ill ON gpu (node) WHERE healthy = 0",
        (
            "CREATE TABLE tally (day INTEGER NOT NULL, ns INTEGER NOT NULL,"
            " verdict INTEGER NOT NULL, reason INTEGER NOT NULL, mode INTEGER NOT NULL,"
            " state INTEGER NOT NULL, decisions INTEGER NOT NULL,"
            " PRIMARY KEY (day, ns, verdict, reason, mode, state)) WITHOUT ROWID"
        ),
        "CREATE INDEX decision_over ON decision (over) WHERE over IS NOT NULL",
        "CREATE TABLE component (name TEXT PRIMARY KEY, at INTEGER NOT NULL)",
    ),
    (  # An id is its sender's: nobody takes that of another's record by sending it first.
        (
            "CREATE TABLE record_of_sender (seq INTEGER PRIMARY KEY, id BLOB NOT NULL,"
            " at INTEGER NOT NULL, kind INTEGER NOT NULL, ns INTEGER NOT NULL,"
            " node INTEGER NOT NULL, decision INTEGER, sender INTEGER NOT NULL,"
            " body BLOB NOT NULL, UNIQUE (id, sender))"
        ),
        f"INSERT INTO record_of_sender SELECT {_RECORD_COLUMNS} FROM record",
        "DROP TABLE record",
        "ALTER TABLE record_of_sender RENAME TO record",
        *_RECORD_INDEXES,
    ),
    (  # So a namespace that floods the store gives up its own records first.
        "CREATE TABLE namespace_size (ns INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)",
        f"INSERT INTO namespace_size SELECT ns, sum({RECORD_SIZE}) FROM record GROUP BY ns",
    ),
)
VERSION: Final = len(VERSIONS)

# Numbers of kinds in the store, which never change. Those from 32 on are rare enough for an index.
KINDS: Final = {
    "admission": 1,
    "bind": 2,
    "released": 3,
    "allocated": 4,
    "started": 5,
    "waiting": 6,
    "workload": 7,
    "late-commit": 32,
    "start-refused": 33,
    "reconfigured": 34,
    "violation": 35,
    "evicted": 36,
    "health": 37,
    "settings": 38,
    "certificate": 39,
    "snapshot": 40,
}
FIRST_RARE: Final = 32
CLUSTER_KINDS: Final = tuple(
    KINDS[kind] for kind in ("health", "reconfigured", "settings", "certificate", "snapshot")
)
