"""Pages of the console, by the groups of its menu."""

from weftline.transports.console.pages.agents import AGENTS
from weftline.transports.console.pages.governance import GOVERNANCE, INSIGHT, KNOWLEDGE
from weftline.transports.console.pages.history import HISTORY
from weftline.transports.console.pages.overview import OPERATIONS, OVERVIEW
from weftline.transports.console.pages.prompts import PROMPTS
from weftline.transports.console.pages.sessions import SESSIONS
from weftline.transports.console.view import MenuGroup

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
