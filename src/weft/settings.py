"""Every setting of a Weft process: its name, meaning and default."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.kernel.errors import Rejected
from weft.kernel.operation import RateClass

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RATES = {
    RateClass.AUTHENTICATION: "60/minute;1000/hour",
    RateClass.SESSION: "1000/minute",
    RateClass.BOARD: "6000/minute",
    RateClass.MESSAGE: "1000/minute",
    RateClass.SEARCH: "100/minute",
    RateClass.MEMORY: "500/minute",
    RateClass.KNOWLEDGE: "1000/minute",
    RateClass.ADMIN: "600/minute",
}


class InvalidSetting(Rejected):
    """A setting is unknown, or has a value Weft cannot use."""

    code = "INVALID_SETTING"
    hint = "See docs/reference/settings.md for what each setting takes."


def setting(default: Any, env: str, meaning: str, *, shown: bool = True) -> Any:  # noqa: ANN401 - a dataclass field of any type
    return field(default=default, metadata={"env": env, "meaning": meaning}, repr=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one Weft process behaves."""

    host: str = setting("127.0.0.1", "WEFT_HOST", "Address the server listens on.")
    port: int = setting(8787, "WEFT_PORT", "Port the server listens on.")
    data: str = setting(
        "~/.weft", "WEFT_DATA", "Folder for the embedded database, for large values and for what searching uses."
    )
    database_url: str = setting(
        "", "WEFT_DATABASE_URL", "A SQLite file or postgresql:// address; weft.db in the data folder if empty."
    )
    objects_url: str = setting(
        "", "WEFT_OBJECTS_URL", "s3://bucket/prefix for large values; the folder objects in the data folder if empty."
    )
    objects_endpoint: str = setting(
        "",
        "WEFT_OBJECTS_ENDPOINT",
        "Address of an S3 service other than Amazon's; credentials come from AWS_* variables.",
    )
    objects_region: str = setting("", "WEFT_OBJECTS_REGION", "Region of the bucket; AWS_REGION or us-east-1 if empty.")
    objects_versioning: str = setting(
        "off", "WEFT_OBJECTS_VERSIONING", "'required' refuses to store large values in a bucket that keeps no versions."
    )
    objects_timeout_seconds: int = setting(
        30,
        "WEFT_OBJECTS_TIMEOUT_SECONDS",
        "How long storing or reading one large value in a bucket may take, 1 to 120.",
    )
    valkey_url: str = setting(
        "", "WEFT_VALKEY_URL", "valkey:// or redis:// address that makes rate limits hold across processes."
    )
    rate_limits: str = setting(
        "", "WEFT_RATE_LIMITS", "Overrides such as 'board=100/second search=off', or 'off' for no limits at all."
    )
    token_minutes: int = setting(60, "WEFT_TOKEN_MINUTES", "How long a token lasts.")
    token_refresh_hours: int = setting(
        24, "WEFT_TOKEN_REFRESH_HOURS", "How long a token may be refreshed before the API key must be shown again."
    )
    memory_limit_mb: int = setting(
        100, "WEFT_MEMORY_LIMIT_MB", "How many mebibytes one agent's private memory may hold."
    )
    context_limit_mb: int = setting(
        1_024, "WEFT_CONTEXT_LIMIT_MB", "How many mebibytes one agent's persistent memory may hold."
    )
    import_limit_mb: int = setting(
        256, "WEFT_IMPORT_LIMIT_MB", "How many mebibytes a bundle that is imported as a stream may have."
    )
    plan: str = setting(
        "enterprise",
        "WEFT_PLAN",
        "What tenants may have of knowledge of which nothing else was agreed: free, pro or enterprise (no limits).",
    )
    max_body_bytes: int = setting(4_194_304, "WEFT_MAX_BODY_BYTES", "Larger request bodies are refused.")
    allowed_hosts: str = setting(
        "", "WEFT_ALLOWED_HOSTS", "Host names clients may use beside the loopback ones, separated by spaces."
    )
    allowed_origins: str = setting(
        "", "WEFT_ALLOWED_ORIGINS", "Web origins allowed to call beside the loopback ones, separated by spaces."
    )
    trusted_proxies: str = setting(
        "", "WEFT_TRUSTED_PROXIES", "Addresses of proxies whose X-Forwarded-For is believed, separated by spaces."
    )
    webhook_private_hosts: str = setting(
        "",
        "WEFT_WEBHOOK_PRIVATE_HOSTS",
        "Hosts that webhooks may call although they are not on the public network, separated by spaces.",
    )
    embedder: str = setting(
        "minilm", "WEFT_EMBEDDER", "'minilm' for the embedding model that comes with Weft, 'remote' for a service."
    )
    embedding_url: str = setting(
        "", "WEFT_EMBEDDING_URL", "Address of a service with OpenAI's /embeddings, such as https://api.example.com/v1."
    )
    embedding_model: str = setting("", "WEFT_EMBEDDING_MODEL", "The service's model.")
    embedding_key: str = setting("", "WEFT_EMBEDDING_KEY", "The key that the service asks for.", shown=False)
    embedding_dimensions: int = setting(0, "WEFT_EMBEDDING_DIMENSIONS", "How many numbers the model's vectors have.")
    embedding_batch: int = setting(64, "WEFT_EMBEDDING_BATCH", "How many texts the service is sent in one call.")
    embedding_threads: int = setting(
        0, "WEFT_EMBEDDING_THREADS", "Threads that embed documents with the model of Weft's own; half the cores if 0."
    )
    embedding_cache_entries: int = setting(
        200_000, "WEFT_EMBEDDING_CACHE_ENTRIES", "How many vectors of texts embedded before are kept for each tenant."
    )
    knowledge_folders: str = setting(
        "",
        "WEFT_KNOWLEDGE_FOLDERS",
        "Folders that sources of knowledge may read, separated by colons; {tenant} stands for the tenant's name.",
    )
    knowledge_private_hosts: str = setting(
        "",
        "WEFT_KNOWLEDGE_PRIVATE_HOSTS",
        "Hosts that sources of knowledge may fetch from although they are not public, separated by spaces.",
    )
    reindex_rate: int = setting(
        0,
        "WEFT_REINDEX_RATE",
        "How many chunks of a tenant are indexed anew in a second, by a reindexing; half of what is possible if 0.",
    )
    index_sessions: str = setting(
        "on", "WEFT_INDEX_SESSIONS", "'off' keeps messages, boards and memory out of search; what is indexed stays."
    )
    log_level: str = setting("INFO", "WEFT_LOG_LEVEL", "DEBUG, INFO, WARNING or ERROR.")
    drain_seconds: int = setting(10, "WEFT_DRAIN_SECONDS", "How long calls in flight may finish after SIGTERM.")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, /, **overrides: Any) -> Settings:  # noqa: ANN401
        """Read settings from the environment; overrides that are not None go before it."""
        unknown = overrides.keys() - {item.name for item in fields(cls)}
        if unknown:
            raise InvalidSetting(f"There is no setting named {', '.join(sorted(unknown))}.")
        environment = os.environ if environment is None else environment
        given = {
            item.name: environment[item.metadata["env"]]
            for item in fields(cls)
            if environment.get(item.metadata["env"])
        }
        given |= {name: value for name, value in overrides.items() if value is not None}
        return cls(**{name: _convert(name, value) for name, value in given.items()})

    @property
    def storage_url(self) -> str:
        return self.database_url or str(Path(self.data).expanduser() / "weft.db")

    @property
    def objects_folder(self) -> Path:
        return Path(self.data).expanduser().absolute() / "objects"

    @property
    def index_folder(self) -> Path:
        return Path(self.data).expanduser().absolute() / "index"

    @property
    def readable_folders(self) -> list[str]:
        return [folder for folder in self.knowledge_folders.split(os.pathsep) if folder]

    @property
    def indexes_sessions(self) -> bool:
        if self.index_sessions not in {"on", "off"}:
            raise InvalidSetting(f"WEFT_INDEX_SESSIONS: '{self.index_sessions}' is neither on nor off.")
        return self.index_sessions == "on"

    def rates(self) -> dict[RateClass, str]:
        """Return the allowance of each class, empty where there is none."""
        if self.rate_limits.strip() == "off":
            return dict.fromkeys(RateClass, "")
        rates = dict(DEFAULT_RATES)
        for override in self.rate_limits.split():
            name, _, rate = override.partition("=")
            if name not in set(RateClass) or not rate:
                raise InvalidSetting(f"WEFT_RATE_LIMITS: '{override}' is not CLASS=RATE with one of {list(RateClass)}.")
            rates[RateClass(name)] = "" if rate == "off" else rate
        return rates


def _convert(name: str, value: Any) -> Any:  # noqa: ANN401 - text or an already typed value
    default = next(item for item in fields(Settings) if item.name == name)
    if not isinstance(default.default, int):
        return str(value)
    try:
        number = int(value)
    except ValueError:
        raise InvalidSetting(f"{default.metadata['env']}: '{value}' is not a whole number.") from None
    if number < 0 or (name == "port" and number > 65_535):  # noqa: PLR2004 - the largest port
        raise InvalidSetting(f"{default.metadata['env']}: {number} is out of range.")
    return number
