"""Who may do what: one table, held against the manifests alone and against a real API server."""

from typing import Final

from tests.authorization.agents import AGENTS
from tests.authorization.ledgers import OTHERS
from tests.authorization.pods import PODS
from tests.authorization.reports import REPORTS
from tests.authorization.roles import ROLES

TABLE: Final = (*ROLES, *AGENTS, *REPORTS, *OTHERS, *PODS)
