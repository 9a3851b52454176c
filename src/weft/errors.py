# Written by scripts/generate.py from the error tree; change the errors instead.
"""Every error a call can end with, to catch by name; weft.kernel.errors draws the tree."""

from weft.capabilities.access.model import AgentExists, AgentNotFound, InvalidParent, KeyUnknown
from weft.capabilities.board.guidance import ConventionsNotFound
from weft.capabilities.board.model import (
    InvalidKey,
    KeyNotFound,
    SnapshotExists,
    SnapshotNotFound,
    StoreFull,
    ValueTooLarge,
)
from weft.capabilities.history.model import VersionConflict
from weft.capabilities.memory.model import KeyExists, MemoryLimitExceeded, MemoryNotFound
from weft.capabilities.messages.model import MessageNotFound
from weft.capabilities.sessions.model import SessionArchived, SessionExists, SessionNotFound
from weft.kernel.errors import (
    AuthenticationError,
    Conflict,
    ContentTooLarge,
    Forbidden,
    HostNotAllowed,
    InternalError,
    InvalidApiKey,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    PermissionDenied,
    PoolNotInitialized,
    RateLimited,
    Rejected,
    StorageFull,
    SystemUnavailable,
    TokenExpired,
    Unavailable,
    UnknownOperation,
    WeftError,
)
from weft.settings import InvalidSetting

__all__ = [
    "AgentExists",
    "AgentNotFound",
    "AuthenticationError",
    "Conflict",
    "ContentTooLarge",
    "ConventionsNotFound",
    "Forbidden",
    "HostNotAllowed",
    "InternalError",
    "InvalidApiKey",
    "InvalidInput",
    "InvalidKey",
    "InvalidParent",
    "InvalidSetting",
    "KeyExists",
    "KeyNotFound",
    "KeyUnknown",
    "MemoryLimitExceeded",
    "MemoryNotFound",
    "MessageNotFound",
    "MethodNotAllowed",
    "NotFound",
    "PermissionDenied",
    "PoolNotInitialized",
    "RateLimited",
    "Rejected",
    "SessionArchived",
    "SessionExists",
    "SessionNotFound",
    "SnapshotExists",
    "SnapshotNotFound",
    "StorageFull",
    "StoreFull",
    "SystemUnavailable",
    "TokenExpired",
    "Unavailable",
    "UnknownOperation",
    "ValueTooLarge",
    "VersionConflict",
    "WeftError",
]
