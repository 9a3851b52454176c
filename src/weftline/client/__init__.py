"""The typed clients: every operation over the wire, for asyncio and for plain code."""

from weftline.client._client import Client
from weftline.client._sync_client import SyncClient

__all__ = ["Client", "SyncClient"]
