# Written by scripts/generate.py from the error tree; change the errors instead.
"""Every error a call can end with, to catch by name; weft.kernel.errors draws the tree."""

from weft.capabilities.access.model import AgentExists, AgentNotFound, InvalidParent, KeyUnknown
from weft.capabilities.board.guidance import ConventionsNotFound
from weft.capabilities.board.model import InvalidKey, KeyNotFound, StoreFull, ValueTooLarge
from weft.capabilities.context.model import ContextKeyNotFound, ContextLimitExceeded, ContextNotPulled, SelfModification
from weft.capabilities.history.model import (
    BranchNotFound,
    LineNotFound,
    SnapshotExists,
    SnapshotNotFound,
    VersionConflict,
    VersionNotFound,
    VersionPruned,
)
from weft.capabilities.memory.lines import MemoryForgets
from weft.capabilities.memory.model import KeyExists, MemoryLimitExceeded, MemoryNotFound
from weft.capabilities.messages.model import MessageNotFound
from weft.capabilities.objects.model import ObjectBusy, ObjectDamaged, ObjectMissing, ObjectStorageUnavailable
from weft.capabilities.sessions.model import SessionArchived, SessionExists, SessionNotFound
from weft.capabilities.timeline.model import (
    BranchExists,
    BranchInUse,
    BranchNotMerged,
    ReviewClosed,
    ReviewNotFound,
    UnrelatedLines,
)
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
    "BranchExists",
    "BranchInUse",
    "BranchNotFound",
    "BranchNotMerged",
    "Conflict",
    "ContentTooLarge",
    "ContextKeyNotFound",
    "ContextLimitExceeded",
    "ContextNotPulled",
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
    "LineNotFound",
    "MemoryForgets",
    "MemoryLimitExceeded",
    "MemoryNotFound",
    "MessageNotFound",
    "MethodNotAllowed",
    "NotFound",
    "ObjectBusy",
    "ObjectDamaged",
    "ObjectMissing",
    "ObjectStorageUnavailable",
    "PermissionDenied",
    "PoolNotInitialized",
    "RateLimited",
    "Rejected",
    "ReviewClosed",
    "ReviewNotFound",
    "SelfModification",
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
    "UnrelatedLines",
    "ValueTooLarge",
    "VersionConflict",
    "VersionNotFound",
    "VersionPruned",
    "WeftError",
]
