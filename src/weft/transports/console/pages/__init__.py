"""Pages of the console, in the order of its menu."""

from weft.transports.console.pages.agents import AGENTS
from weft.transports.console.pages.governance import GOVERNANCE
from weft.transports.console.pages.history import HISTORY
from weft.transports.console.pages.insight import INSIGHT
from weft.transports.console.pages.knowledge import KNOWLEDGE
from weft.transports.console.pages.operations import OPERATIONS
from weft.transports.console.pages.overview import OVERVIEW
from weft.transports.console.pages.prompts import PROMPTS
from weft.transports.console.pages.sessions import SESSIONS

PAGES = (
    *OVERVIEW,
    *SESSIONS,
    *PROMPTS,
    *AGENTS,
    *KNOWLEDGE,
    *HISTORY,
    *GOVERNANCE,
    *INSIGHT,
    *OPERATIONS,
)
