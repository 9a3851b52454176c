"""Settings of a Weftline process: name, environment variable, default and meaning."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weftline.kernel.errors import Rejected
from weftline.kernel.operation import RateClass

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RATES = {
    RateClass.ANONYMOUS: "600/minute",
    RateClass.AUTHENTICATION: "60/minute;1000/hour",
    # More than the other classes allow together.
    RateClass.MCP: "12000/minute",
    RateClass.SESSION: "1000/minute",
    RateClass.BOARD: "6000/minute",
    RateClass.MESSAGE: "1000/minute",
    RateClass.SEARCH: "100/minute",
    RateClass.MEMORY: "500/minute",
    RateClass.KNOWLEDGE: "1000/minute",
    RateClass.ADMIN: "600/minute",
}


_LARGEST = {"port": 65_535, "proxy_port": 65_535, "doubt_percent": 100}
# Shorter tokens can be guessed.
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_MIN_TOKEN_LENGTH = 16


class InvalidSetting(Rejected):
    """A setting is unknown or has an invalid value."""

    code = "INVALID_SETTING"
    hint = "See docs/reference/settings.md for the values of each setting."


EVERY_INTERFACE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound to


def setting(default: Any, env: str, meaning: str, *, shown: bool = True) -> Any:  # noqa: ANN401 - a dataclass field of any type
    return field(default=default, metadata={"env": env, "meaning": meaning}, repr=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configuration of one Weftline process."""

    host: str = setting("127.0.0.1", "WEFTLINE_HOST", "Address the server listens on.")
    port: int = setting(8787, "WEFTLINE_PORT", "Port the server listens on.")
    data_dir: str = setting(
        "~/.weftline", "WEFTLINE_DATA_DIR", "Folder for the embedded database, large values and the search index."
    )
    database_url: str = setting(
        "", "WEFTLINE_DATABASE_URL", "SQLite file or postgresql:// URL; weftline.db in the data folder if empty."
    )
    database_direct_url: str = setting(
        "",
        "WEFTLINE_DATABASE_DIRECT_URL",
        "postgresql:// URL that leads past a pooler in transaction mode, for LISTEN and building indexes; set it if "
        "WEFTLINE_DATABASE_URL leads to such a pooler.",
    )
    object_store_url: str = setting(
        "",
        "WEFTLINE_OBJECT_STORE_URL",
        "s3://BUCKET/PREFIX for large values; the folder objects in the data folder if empty.",
    )
    object_store_endpoint: str = setting(
        "",
        "WEFTLINE_OBJECT_STORE_ENDPOINT",
        "URL of an S3 service other than Amazon's; credentials come from the AWS_* variables.",
    )
    object_store_region: str = setting(
        "", "WEFTLINE_OBJECT_STORE_REGION", "Region of the bucket; AWS_REGION or us-east-1 if empty."
    )
    object_store_versioning: str = setting(
        "on",
        "WEFTLINE_OBJECT_STORE_VERSIONING",
        "'on' turns versioning on for the bucket where it can; 'required' refuses to store large values without it; "
        "'off' leaves the bucket as it is.",
    )
    object_store_timeout_seconds: int = setting(
        30,
        "WEFTLINE_OBJECT_STORE_TIMEOUT_SECONDS",
        "Timeout for writing or reading one large value in a bucket, 1 to 120.",
    )
    valkey_url: str = setting(
        "",
        "WEFTLINE_VALKEY_URL",
        "valkey:// or redis:// URL; shares rate limits between processes. Those of one SQLite file do so without it.",
    )
    rate_limits: str = setting(
        "", "WEFTLINE_RATE_LIMITS", "Overrides such as 'board=100/second search=off', or 'off' for no limits."
    )
    token_minutes: int = setting(60, "WEFTLINE_TOKEN_MINUTES", "Lifetime of a token.")
    token_max_age_hours: int = setting(
        24,
        "WEFTLINE_TOKEN_MAX_AGE_HOURS",
        "Maximum age up to which a token can be refreshed; after that the API key is required.",
    )
    signing_secret: str = setting(
        "",
        "WEFTLINE_SIGNING_SECRET",
        "Part of the key that signs layers and definitions, kept outside the database and the same in every process. "
        "Without it, who can write to the database can also sign.",
        shown=False,
    )
    agent_limit: int = setting(
        10_000,
        "WEFTLINE_AGENT_LIMIT",
        "Maximum active agents per tenant, of which one orchestrator may have half below it; 0: no limit.",
    )
    memory_limit_mb: int = setting(100, "WEFTLINE_MEMORY_LIMIT_MB", "Quota for one agent's private memory, in MiB.")
    context_limit_mb: int = setting(
        1_024, "WEFTLINE_CONTEXT_LIMIT_MB", "Quota for one agent's persistent memory, in MiB."
    )
    pinned_tokens: int = setting(
        4_000,
        "WEFTLINE_PINNED_TOKENS",
        "Maximum tokens of all pins of one session, memory or domain; each author may use half.",
    )
    receipt_days: int = setting(
        90,
        "WEFTLINE_RECEIPT_DAYS",
        "Days for which receipts of assembled prompts and their texts are kept; 0: forever.",
    )
    event_days: int = setting(
        90,
        "WEFTLINE_EVENT_DAYS",
        "Days for which events are kept, at least; later ones wait for webhooks and indexing. 0: forever.",
    )
    audit_days: int = setting(400, "WEFTLINE_AUDIT_DAYS", "Days for which audit rows are kept; 0: forever.")
    approval_wait_seconds: int = setting(
        20,
        "WEFTLINE_APPROVAL_WAIT_SECONDS",
        "How long a call that needs an approval waits for it before it is answered APPROVAL_PENDING, up to 300; 0: not "
        "at all.",
    )
    import_limit_mb: int = setting(
        256, "WEFTLINE_IMPORT_LIMIT_MB", "Maximum size of a bundle imported as a stream, in MiB."
    )
    default_plan: str = setting(
        "enterprise",
        "WEFTLINE_DEFAULT_PLAN",
        "Knowledge plan of tenants without one: free, pro or enterprise (no limits).",
    )
    tools: str = setting(
        "default",
        "WEFTLINE_TOOLS",
        "Tool profile of MCP clients whose URL and API key name none: default, full, collaboration or groups such as "
        "'board,messages'.",
    )
    max_body_bytes: int = setting(4_194_304, "WEFTLINE_MAX_BODY_BYTES", "Maximum size of a request body.")
    allowed_hosts: str = setting(
        "", "WEFTLINE_ALLOWED_HOSTS", "Accepted Host headers in addition to the loopback names, separated by spaces."
    )
    allowed_origins: str = setting(
        "", "WEFTLINE_ALLOWED_ORIGINS", "Accepted web origins in addition to the loopback ones, separated by spaces."
    )
    trusted_proxies: str = setting(
        "",
        "WEFTLINE_TRUSTED_PROXIES",
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted, separated "
        "by spaces.",
    )
    webhook_private_hosts: str = setting(
        "",
        "WEFTLINE_WEBHOOK_PRIVATE_HOSTS",
        "Hosts outside the public network that webhooks may call, separated by spaces.",
    )
    embedder: str = setting(
        "minilm", "WEFTLINE_EMBEDDER", "'minilm' for the embedding model included in Weftline, 'remote' for a service."
    )
    embedding_url: str = setting(
        "",
        "WEFTLINE_EMBEDDING_URL",
        "Base URL of an OpenAI-compatible /embeddings service, such as https://api.example.com/v1.",
    )
    embedding_model: str = setting("", "WEFTLINE_EMBEDDING_MODEL", "Model of the embedding service.")
    embedding_key: str = setting("", "WEFTLINE_EMBEDDING_KEY", "API key of the embedding service.", shown=False)
    embedding_dimensions: int = setting(
        0, "WEFTLINE_EMBEDDING_DIMENSIONS", "Number of dimensions of the service's vectors."
    )
    embedding_batch: int = setting(
        64, "WEFTLINE_EMBEDDING_BATCH", "Maximum number of texts in one request to the embedding service."
    )
    embedding_threads: int = setting(
        0, "WEFTLINE_EMBEDDING_THREADS", "Threads that embed documents with the included model; half the cores if 0."
    )
    doubt_percent: int = setting(
        12,
        "WEFTLINE_DOUBT_PERCENT",
        "The most tokens of doubtful passages in a prompt, in percent of those that passages may have (8,000, or the "
        "prompt's limit if that is less), up to 100; 0: none.",
    )
    embedding_idle_seconds: int = setting(
        600,
        "WEFTLINE_EMBEDDING_IDLE_SECONDS",
        "Unused for so long, an included model is released from memory until the next text; 0: never.",
    )
    embedding_cache_entries: int = setting(200_000, "WEFTLINE_EMBEDDING_CACHE_ENTRIES", "Cached vectors per tenant.")
    knowledge_folders: str = setting(
        "",
        "WEFTLINE_KNOWLEDGE_FOLDERS",
        "Folders that knowledge sources may read, separated by colons; {tenant} is replaced by the tenant's name.",
    )
    fetch_private_hosts: str = setting(
        "",
        "WEFTLINE_FETCH_PRIVATE_HOSTS",
        "Hosts outside the public network that knowledge sources may fetch from, separated by spaces.",
    )
    gateway_commands: str = setting(
        "off",
        "WEFTLINE_GATEWAY_COMMANDS",
        "'on' lets admins add MCP servers to the gateway that Weftline starts as programs of this machine, with the "
        "rights of its own user. For machines whose admins are their owners.",
    )
    gateway_environment: str = setting(
        "",
        "WEFTLINE_GATEWAY_ENVIRONMENT",
        "Variables of Weftline's environment that MCP servers of the gateway may be given, separated by spaces.",
    )
    gateway_private_hosts: str = setting(
        "",
        "WEFTLINE_GATEWAY_PRIVATE_HOSTS",
        "Hosts outside the public network whose MCP servers the gateway may call, separated by spaces.",
    )
    reindex_rate: int = setting(
        0,
        "WEFTLINE_REINDEX_RATE",
        "Maximum chunks per second and tenant while reindexing; half of the measured capacity if 0.",
    )
    session_indexing: str = setting(
        "on",
        "WEFTLINE_SESSION_INDEXING",
        "'off' stops indexing messages, boards and memory for search; existing entries stay.",
    )
    semantic_search: str = setting(
        "on",
        "WEFTLINE_SEMANTIC_SEARCH",
        "'off' embeds nothing: searches of all tenants find by words only, and the model is never loaded.",
    )
    search_wait_ms: int = setting(
        300,
        "WEFTLINE_SEARCH_WAIT_MS",
        "How long a search waits at most until what its own caller has just written is indexed; 0: not at all.",
    )
    models_file: str = setting(
        "",
        "WEFTLINE_MODELS_FILE",
        "JSON file that adds language models or corrects limits of the included models.json; same format.",
    )
    chat_model: str = setting(
        "",
        "WEFTLINE_CHAT_MODEL",
        "Language model for summaries: openai:MODEL for any OpenAI-compatible endpoint, or anthropic:MODEL; without "
        "one, summaries are made without a model.",
    )
    chat_url: str = setting(
        "",
        "WEFTLINE_CHAT_URL",
        "Base URL of the model's endpoint, such as http://127.0.0.1:11434/v1; the provider's own if empty.",
    )
    chat_api_key: str = setting("", "WEFTLINE_CHAT_API_KEY", "API key of the model's endpoint.", shown=False)
    chat_timeout_seconds: int = setting(
        60, "WEFTLINE_CHAT_TIMEOUT_SECONDS", "Timeout for one request to the model, 1 to 600."
    )
    chat_concurrency: int = setting(
        4,
        "WEFTLINE_CHAT_CONCURRENCY",
        "Maximum concurrent requests to the model, 1 to 64; one tenant may use half.",
    )
    injection_model: str = setting(
        "",
        "WEFTLINE_INJECTION_MODEL",
        "Folder with model.onnx, a classifier of prompt injection to use in place of the included detector.",
    )
    proxy_upstreams: str = setting(
        "",
        "WEFTLINE_PROXY_UPSTREAMS",
        "Where the model proxy forwards to, in place of the addresses of anthropic, openai and gemini: entries such as "
        "openai=https://llm.example.com, or openai:llama*=http://127.0.0.1:11434 for some models, separated by spaces; "
        "'off' to forward nothing.",
    )
    proxy_private_hosts: str = setting(
        "",
        "WEFTLINE_PROXY_PRIVATE_HOSTS",
        "Names of hosts outside the public network that the model proxy may forward to, separated by spaces. "
        "Addresses in WEFTLINE_PROXY_UPSTREAMS, such as 127.0.0.1, are always allowed.",
    )
    proxy_port: int = setting(8788, "WEFTLINE_PROXY_PORT", "Port that weftline proxy listens on.")
    proxy_wait_ms: int = setting(
        50,
        "WEFTLINE_PROXY_WAIT_MS",
        "How long a request to the model proxy waits at most for Weftline: to find out who calls, and to edit it.",
    )
    proxy_mode: str = setting(
        "",
        "WEFTLINE_PROXY_MODE",
        "What weftline proxy and weftline wrap may change in requests, in place of the settings of the agent: observe, "
        "trim or full. Without a database nothing is changed.",
    )
    proxy_keys: str = setting(
        "",
        "WEFTLINE_PROXY_KEYS",
        "Keys of providers that the server adds to calls of models that have none: entries ROUTE/TENANT/WHO=KEY, "
        "separated by spaces or lines, such as anthropic/default/team:research=KEY. ROUTE is as in "
        "WEFTLINE_PROXY_UPSTREAMS, WHO as in ACLs, and KEY the key or $NAME, a variable that holds it.",
        shown=False,
    )
    proxy_fail_closed: str = setting(
        "off",
        "WEFTLINE_PROXY_FAIL_CLOSED",
        "'on' refuses requests to the model proxy while it cannot be found out who calls, and answers whose tool calls "
        "guardrails cannot be applied to, and withholds results of tools that look like an attack; 'off' passes them "
        "on, except for tenants whose policy is proxy_fails_closed.",
    )
    metrics_token: str = setting(
        "",
        "WEFTLINE_METRICS_TOKEN",
        "Credential for GET /metrics, at least 16 characters; without it metrics are not served.",
        shown=False,
    )
    log_level: str = setting(
        "", "WEFTLINE_LOG_LEVEL", "DEBUG, INFO, WARNING or ERROR; by default INFO, of `weftline proxy` ERROR."
    )
    shutdown_grace_seconds: int = setting(
        10, "WEFTLINE_SHUTDOWN_GRACE_SECONDS", "Time for calls in flight to finish after SIGTERM."
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, /, **overrides: Any) -> Settings:  # noqa: ANN401
        """Read settings from the environment; overrides that are not None take precedence.

        WEFTLINE_NAME_FILE names a file that holds the value of WEFTLINE_NAME, as container platforms provide secrets.
        """
        unknown = overrides.keys() - {item.name for item in fields(cls)}
        if unknown:
            raise InvalidSetting(f"There is no setting named {', '.join(sorted(unknown))}.")
        environment = os.environ if environment is None else environment
        given = {
            item.name: value for item in fields(cls) if (value := _environment_value(environment, item.metadata["env"]))
        }
        given |= {name: value for name, value in overrides.items() if value is not None}
        return cls(**{name: _convert(name, value) for name, value in given.items()})

    @property
    def listens_everywhere(self) -> bool:
        return self.host in EVERY_INTERFACE

    @property
    def url_host(self) -> str:
        """Return the address the server listens on as it is written in a URL, where an IPv6 address has brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def address(self, port: int | None = None) -> str:
        """Return the URL of a server on this machine."""
        host = "127.0.0.1" if self.listens_everywhere else self.url_host
        return f"http://{host}:{self.port if port is None else port}"

    @property
    def storage_url(self) -> str:
        return self.database_url or str(Path(self.data_dir).expanduser() / "weftline.db")

    @property
    def counter_file(self) -> Path | None:
        """Return the file in which the processes of a SQLite database count calls."""
        return None if "://" in self.storage_url else Path(f"{self.storage_url}-rates").absolute()

    @property
    def call_journal_folder(self) -> Path:
        """Return the folder with the usage of proxied calls that are not metered yet."""
        return Path(self.data_dir).expanduser().absolute() / "proxied-calls"

    @property
    def object_store_folder(self) -> Path:
        return Path(self.data_dir).expanduser().absolute() / "objects"

    @property
    def index_folder(self) -> Path:
        return Path(self.data_dir).expanduser().absolute() / "index"

    @property
    def partial_files_journal(self) -> Path:
        """Return the file that lists unfinished backups and exports."""
        return Path(self.data_dir).expanduser().absolute() / "partial-files"

    @property
    def readable_folders(self) -> list[str]:
        return [folder for folder in self.knowledge_folders.split(os.pathsep) if folder]

    @property
    def indexes_sessions(self) -> bool:
        return _is_on("WEFTLINE_SESSION_INDEXING", self.session_indexing)

    @property
    def searches_by_meaning(self) -> bool:
        return _is_on("WEFTLINE_SEMANTIC_SEARCH", self.semantic_search)

    @property
    def proxy_fails_closed(self) -> bool:
        return _is_on("WEFTLINE_PROXY_FAIL_CLOSED", self.proxy_fail_closed)

    @property
    def chosen_proxy_mode(self) -> Literal["observe", "trim", "full"] | None:
        """Return the mode of the proxy on this machine; None: that of the agent's settings."""
        match self.proxy_mode:
            case "":
                return None
            case "observe" | "trim" | "full":
                return self.proxy_mode
            case _:
                raise InvalidSetting(f"WEFTLINE_PROXY_MODE: '{self.proxy_mode}' is none of observe, trim and full.")

    @property
    def metrics_credential(self) -> bytes | None:
        """Return the token that /metrics needs; None if it is not served."""
        if not self.metrics_token:
            return None
        if len(self.metrics_token) < _MIN_TOKEN_LENGTH:
            raise InvalidSetting(f"WEFTLINE_METRICS_TOKEN has fewer than {_MIN_TOKEN_LENGTH} characters.")
        return self.metrics_token.encode()

    def lowest_logged_level(self, default: str = "INFO") -> str:
        level = (self.log_level or default).upper()
        if level not in _LEVELS:
            raise InvalidSetting(f"WEFTLINE_LOG_LEVEL: '{self.log_level}' is none of {', '.join(_LEVELS)}.")
        return level

    def rates(self) -> dict[RateClass, str]:
        """Return the rate limit of each class; empty means unlimited."""
        if self.rate_limits.strip() == "off":
            return dict.fromkeys(RateClass, "")
        rates = dict(DEFAULT_RATES)
        for override in self.rate_limits.split():
            name, _, rate = override.partition("=")
            if name not in set(RateClass) or not rate:
                raise InvalidSetting(
                    f"WEFTLINE_RATE_LIMITS: '{override}' is not CLASS=RATE with one of {list(RateClass)}."
                )
            rates[RateClass(name)] = "" if rate == "off" else rate
        return rates


def _environment_value(environment: Mapping[str, str], env: str) -> str:
    """Return the value of a variable, or of the file that a variable with the suffix _FILE names; empty if neither."""
    value, path = environment.get(env, ""), environment.get(f"{env}_FILE", "")
    if not path:
        return value
    if value:
        raise InvalidSetting(f"{env} and {env}_FILE are both set.")
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        # Neither the path nor the content is shown: one of them may be a secret that was put in the wrong variable.
        raise InvalidSetting(f"{env}_FILE names a file that cannot be read ({type(error).__name__}).") from None


def _is_on(env: str, value: str) -> bool:
    if value not in {"on", "off"}:
        raise InvalidSetting(f"{env}: '{value}' is neither on nor off.")
    return value == "on"


def _convert(name: str, value: Any) -> Any:  # noqa: ANN401 - text or an already typed value
    default = next(item for item in fields(Settings) if item.name == name)
    if not isinstance(default.default, int):
        return str(value)
    try:
        number = int(value)
    except ValueError:
        raise InvalidSetting(f"{default.metadata['env']}: '{value}' is not a whole number.") from None
    if not 0 <= number <= _LARGEST.get(name, number):
        raise InvalidSetting(f"{default.metadata['env']}: {number} is out of range.")
    return number
