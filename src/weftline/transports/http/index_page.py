"""Index page at /: how to use this server. It shows no data."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from weftline import __version__

if TYPE_CHECKING:
    from weftline.kernel.operation import Registry

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Weftline server</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root {{ color-scheme: light dark; --line: #8884; }}
  body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1.5rem; }}
  h1 {{ margin-bottom: 0; }} h1 small {{ font-weight: 400; opacity: .7; font-size: 1rem; }}
  pre {{ border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; overflow-x: auto; }}
  dt {{ font-weight: 600; margin-top: .8rem; }} dd {{ margin: 0; }}
  code {{ font: .9em ui-monospace, monospace; }}
</style></head><body><main>
<h1>Weftline <small>{version}</small></h1>
<p>The context layer for multi-agent systems. This server is running.</p>
<dl>
<dt><a href="/console">Console</a></dt><dd>What agents share, remember and were told, for people.</dd>
<dt>MCP at <code>/mcp</code></dt><dd>Tools for agents, by streamable HTTP, with an API key.</dd>
<dt>REST below <code>/v1</code></dt><dd>{operations} operations, described in <a href="/openapi.json">OpenAPI</a>.</dd>
<dt><a href="/health">Health</a>, <a href="/ready">readiness</a>, <code>/metrics</code></dt>
<dd>For who runs the server; metrics need the operator's token.</dd>
</dl>
<p>On the server's machine:</p>
<pre>weftline console             # open the console, signed in
weftline session list        # list sessions of the data folder
weftline init claude-code    # connect your editor or agent</pre>
</main></body></html>"""


def landing_page(registry: Registry) -> str:
    return _PAGE.format(version=escape(__version__), operations=sum(1 for _ in registry))
