"""Index page at /: how to use this server. It shows no data."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from weftline import __version__

if TYPE_CHECKING:
    from weftline.kernel.operation import Registry

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Weftline</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root {{ color-scheme: light dark; --line: #8884; }}
  body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; }}
  h1 {{ margin-bottom: 0; }} h1 small {{ font-weight: 400; opacity: .6; font-size: 1rem; }}
  pre {{ border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; overflow-x: auto; }}
  table {{ border-collapse: collapse; width: 100%; }}
  td {{ border-top: 1px solid var(--line); padding: .35rem .8rem .35rem 0; vertical-align: top; }}
  code {{ font: .9em ui-monospace, monospace; }}
</style></head><body>
<h1>Weftline <small>{version}</small></h1>
<p>The context layer for multi-agent systems. This server speaks MCP at <code>/mcp</code>, REST under
<code>/v1</code> (<a href="/openapi.json">OpenAPI</a>), has a <a href="/console">console</a> for people, and
reports <a href="/health">health</a>,
<a href="/ready">readiness</a> and, with the operator's token, metrics at <code>/metrics</code>.</p>
<pre>weftline session list                       # list sessions of the data folder
weftline board list-keys --session ID
weftline init claude-code                   # connect your editor or agent</pre>
<table>{rows}</table>
</body></html>"""


def landing_page(registry: Registry) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(operation.route.method)} {escape(operation.route.path)}</code></td>"
        f"<td>{escape(operation.summary)}</td></tr>"
        for operation in registry
    )
    return _PAGE.format(version=escape(__version__), rows=rows)
