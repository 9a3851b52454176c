"""Pages of the console, by the groups of its menu."""

from weft.transports.console.pages.agents import AGENTS
from weft.transports.console.pages.governance import GOVERNANCE
from weft.transports.console.pages.history import HISTORY
from weft.transports.console.pages.insight import INSIGHT
from weft.transports.console.pages.knowledge import KNOWLEDGE
from weft.transports.console.pages.operations import OPERATIONS
from weft.transports.console.pages.overview import OVERVIEW
from weft.transports.console.pages.prompts import PROMPTS
from weft.transports.console.pages.sessions import SESSIONS
from weft.transports.console.view import MenuGroup

MENU = (
    MenuGroup("", OVERVIEW),
    MenuGroup("Work", (*SESSIONS, *PROMPTS, *HISTORY)),
    MenuGroup("Agents", AGENTS),
    MenuGroup("Knowledge", KNOWLEDGE),
    MenuGroup("Control", GOVERNANCE),
    MenuGroup("Cost", INSIGHT),
    MenuGroup("Server", OPERATIONS),
)
PAGES = tuple(page for group in MENU for page in group.pages)
