"""Where the console is, and the link that signs in; needs no web server."""

from __future__ import annotations

PATH = "/console"
SIGN_IN = f"{PATH}/sign-in"


def link_to(url: str, token: str) -> str:
    """Return a link that signs in. The token is in the fragment, which browsers send to no server."""
    return f"{url.rstrip('/')}{SIGN_IN}#{token}"
