"""``weftline proxy`` in a process that can be killed: DATABASE DATA_DIR TENANT AGENT UPSTREAM."""

from __future__ import annotations

import sys

from weftline.models.language_models.chat_model import ChatCaller
from weftline.settings import Settings
from weftline.transports.proxy.server import serve_proxy

if __name__ == "__main__":
    url, folder, tenant, agent, upstream = sys.argv[1:]
    settings = Settings(
        database_url=url,
        data_dir=folder,
        rate_limits="off",
        session_indexing="off",
        proxy_port=0,
        proxy_upstreams=f"anthropic={upstream}",
    )
    serve_proxy(settings, ChatCaller(tenant, agent))
