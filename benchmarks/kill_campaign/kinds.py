"""Kinds of work: each does something again and again, and later finds all of it that was acknowledged.

Work that was not acknowledged must have happened whole or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from benchmarks.kill_campaign.client import CallRefused, Client, OutcomeUnknown, RunningServer
from benchmarks.servers import ADMIN, open_app
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from weftline.app.app import App

SESSION, SOURCE, PRUNED, EXPORTED, DOMAIN = "kills", "source", "pruned", "exported", "handbook"
AGENT = CallContext(Local("default", "worker"))
_TEMPLATE, _TEMPLATE_METADATA = "runbooks", {"service": "billing"}
_KEYS = 40
_ENTRIES = 5
# For background work to end after the last kill, on a busy machine.
INDEX_SECONDS = 600.0
POLL_SECONDS = 0.5


class Kind(ABC):
    """Work of one kind. ``acknowledged`` holds what the server confirmed, ``tried`` counts all that was begun.

    ``interrupted`` counts calls that got no answer because a process was killed.
    """

    name: ClassVar[str]
    pause_seconds: ClassVar[float] = 0.0

    def __init__(self, server: RunningServer) -> None:
        self.client = Client(server)
        self.acknowledged: list[Any] = []
        self.tried = self.interrupted = 0
        self.refusals: list[str] = []

    async def keep_working(self) -> None:
        while True:
            self.tried += 1
            try:
                self.acknowledged.append(await self.work(self.tried))
            except OutcomeUnknown:
                self.interrupted += 1
                continue
            except CallRefused as error:
                self.refusals.append(str(error))
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.pause_seconds)

    @abstractmethod
    async def work(self, number: int) -> Any:  # noqa: ANN401 - whatever the kind looks for later
        """Do something once; return what can be looked for later."""

    @abstractmethod
    async def found(self, app: App) -> int:
        """Return how many of the acknowledged are found, and complete."""


async def as_agent(app: App, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return await _call(app, AGENT, operation, raw)


async def as_admin(app: App, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return await _call(app, ADMIN, operation, raw)


async def _call(app: App, caller: CallContext, operation: str, raw: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    # Answers may contain values as stored JSON.
    return msgspec.json.decode(msgspec.json.encode(await app.call(app.registry[operation], raw, caller)))


async def _values(app: App, session: str, key: str) -> set[str]:
    """Return every value that a key of a board has had."""
    try:
        versions = (await as_agent(app, "board.read_history", session_id=session, key=key))["versions"]
    except NotFound:
        return set()
    return {version["value"] for version in versions}


class Writes(Kind):
    """Writes to the board."""

    name = "writes"

    async def work(self, number: int) -> tuple[str, str]:
        key, value = f"w{number % _KEYS}", f"write {number}"
        await self.client.call("PUT", f"/v1/sessions/{SESSION}/context/{key}", {"value": value})
        return key, value

    async def found(self, app: App) -> int:
        stored = {f"w{place}": await _values(app, SESSION, f"w{place}") for place in range(_KEYS)}
        return sum(value in stored[key] for key, value in self.acknowledged)


class Messages(Kind):
    name = "messages"

    async def work(self, number: int) -> str:
        await self.client.call("POST", f"/v1/sessions/{SESSION}/messages", {"content": f"message {number}"})
        return f"message {number}"

    async def found(self, app: App) -> int:
        stored: set[str] = set()
        after = 0
        while page := (await as_agent(app, "message.list", session_id=SESSION, after_id=after, limit=1_000))[
            "messages"
        ]:
            stored |= {message["content"] for message in page}
            after = max(message["id"] for message in page)
        return sum(content in stored for content in self.acknowledged)


class MemoryEntries(Kind):
    name = "memory"

    async def work(self, number: int) -> str:
        await self.client.call("PUT", f"/v1/memory/m{number}", {"value": f"memory {number}"})
        return f"m{number}"

    async def found(self, app: App) -> int:
        answers = [await as_agent(app, "memory.get", key=key) for key in self.acknowledged]
        return sum(answer["value"] == f"memory {answer['key'][1:]}" for answer in answers)


class Pushes(Kind):
    """Pushes of several entries of agent context, each whole or not at all."""

    name = "pushes"

    async def work(self, number: int) -> int:
        entries = [{"key": f"p{number}_{place}", "value": f"push {number}"} for place in range(_ENTRIES)]
        await self.client.call("POST", "/v1/context/push", {"knowledge": entries})
        return number

    async def found(self, app: App) -> int:
        stored: dict[int, int] = {}
        cursor: dict[str, Any] = {}
        while True:
            page = await as_agent(app, "context.read", limit=200, **cursor)
            for entry in page["entries"]:
                number = int(entry["key"][1:].partition("_")[0])
                stored[number] = stored.get(number, 0) + 1
            if not page["has_more"]:
                break
            cursor = {"cursor": page["next_cursor"]}
        torn = sum(count != _ENTRIES for count in stored.values())
        return sum(stored.get(number) == _ENTRIES for number in self.acknowledged) - torn


class Merges(Kind):
    """Branch, write in the branch, merge; the next one deletes the branch, because a board has only so many."""

    name = "merges"
    _board = f"/v1/history/board:{SESSION}"
    _last = ""

    async def work(self, number: int) -> tuple[str, str]:
        await self._delete_last()
        key, value, branch = f"g{number % _KEYS}", f"merge {number}", f"b{number}"
        self._last = branch
        await self.client.call("POST", f"{self._board}/branches", {"branch": branch})
        await self.client.call("PUT", f"/v1/sessions/{SESSION}/context/{key}", {"value": value, "branch": branch})
        await self.client.call("POST", f"{self._board}/merge", {"from_context_id": f"board:{SESSION}@{branch}"})
        return key, value

    async def _delete_last(self) -> None:
        if self._last:
            # A kill may have come before it was created, or after it was deleted.
            with contextlib.suppress(CallRefused):
                await self.client.call("DELETE", f"{self._board}/branches/{self._last}?force=true")
            self._last = ""

    async def found(self, app: App) -> int:
        stored = {f"g{place}": await _values(app, SESSION, f"g{place}") for place in range(_KEYS)}
        return sum(value in stored[key] for key, value in self.acknowledged)


class Snapshots(Kind):
    name = "snapshots"
    pause_seconds = 0.1

    async def work(self, number: int) -> str:
        await self.client.call("POST", f"/v1/sessions/{SESSION}/snapshots", {"label": f"s{number}"})
        return f"s{number}"

    async def found(self, app: App) -> int:
        listed = await as_agent(app, "board.list_snapshots", session_id=SESSION)
        stored = {snapshot["label"] for snapshot in listed["snapshots"]}
        return sum(label in stored for label in self.acknowledged)


class DeletedSessions(Kind):
    """Sessions that are created, filled and deleted."""

    name = "deletes"

    async def work(self, number: int) -> str:
        session = f"short{number}"
        await self.client.call("POST", "/v1/sessions", {"purpose": "short", "session_id": session})
        await self.client.call("PUT", f"/v1/sessions/{session}/context/a", {"value": "b"})
        await self.client.call("DELETE", f"/v1/sessions/{session}?force=true")
        return session

    async def found(self, app: App) -> int:
        gone = 0
        for session in self.acknowledged:
            try:
                await as_agent(app, "session.get", session_id=session)
            except NotFound:
                gone += 1
        return gone


class Documents(Kind):
    """Documents, which are indexed later: all must be, and their text must be readable."""

    name = "documents"
    pause_seconds = 0.05

    async def work(self, number: int) -> str:
        document = f"d{number}"
        body = {"document_id": document, "text": _document(document)}
        await self.client.call("POST", f"/v1/domains/{DOMAIN}/documents", body)
        return document

    async def found(self, app: App) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INDEX_SECONDS):
                while await self._pending(app):  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(POLL_SECONDS)
        lost = set(await self._pending(app))
        texts = [
            await as_admin(app, "knowledge.read_document", domain=DOMAIN, document_id=document)
            for document in self.acknowledged
            if document not in lost
        ]
        return sum(text["text"] == _document(text["document_id"]) for text in texts)

    async def _pending(self, app: App) -> list[str]:
        """Return the acknowledged documents that are not indexed."""
        return [document for document in self.acknowledged if not await self._is_indexed(app, document)]

    async def _is_indexed(self, app: App, document: str) -> bool:
        shown = await as_admin(app, "knowledge.get_document", domain=DOMAIN, document_id=document)
        return bool(shown["state"] == "indexed")


def _document(name: str) -> str:
    return f"# {name}\n\nThe page about {name} says that {name} is shipped on Friday."


class Exports(Kind):
    """Exports of a session, read to their end; each must be importable."""

    name = "exports"
    pause_seconds = 0.1

    async def work(self, number: int) -> bytes:
        del number
        answer = await self.client.send("POST", "/v1/export/stream", {"session_id": EXPORTED, "scope": "session"})
        return answer.body

    async def found(self, app: App) -> int:
        valid = 0
        for number, bundle in enumerate(self.acknowledged):
            raw = {"bundle": bundle.decode(), "session_id": f"check{number}", "dry_run": True}
            valid += (await as_admin(app, "bundle.import", **raw))["versions"] > 0
        return valid


class Imports(Kind):
    """Imports of a bundle under new names; each is whole or absent."""

    name = "imports"
    pause_seconds = 0.1

    def __init__(self, server: RunningServer, bundle: str, keys: int) -> None:
        super().__init__(server)
        self._bundle = bundle
        self._keys = keys

    async def work(self, number: int) -> str:
        await self.client.call("POST", "/v1/import", {"bundle": self._bundle, "session_id": f"import{number}"})
        return f"import{number}"

    async def found(self, app: App) -> int:
        sizes = {f"import{number}": await self._size(app, f"import{number}") for number in range(1, self.tried + 1)}
        torn = sum(size not in {0, self._keys} for size in sizes.values())
        return sum(sizes[session] == self._keys for session in self.acknowledged) - torn

    async def _size(self, app: App, session: str) -> int:
        try:
            return len((await as_admin(app, "board.list_keys", session_id=session))["keys"])
        except NotFound:
            return 0


class Domains(Kind):
    """Domains that are created from a template and filled; four of five are deleted again."""

    name = "domains"
    pause_seconds = 0.2

    async def work(self, number: int) -> tuple[str, bool]:
        """Return the domain, and whether it is kept."""
        domain, is_kept = f"kb{number}", number % 5 == 0
        await self.client.call("POST", "/v1/domains", {"domain": domain, "template": _TEMPLATE})
        body = {"document_id": "a.md", "text": _document(domain), "metadata": _TEMPLATE_METADATA}
        await self.client.call("POST", f"/v1/domains/{domain}/documents", body)
        if not is_kept:
            await self.client.call("DELETE", f"/v1/domains/{domain}")
        return domain, is_kept

    async def found(self, app: App) -> int:
        return sum([await self._is_as_left(app, domain, is_kept) for domain, is_kept in self.acknowledged])

    async def _is_as_left(self, app: App, domain: str, is_kept: bool) -> bool:  # noqa: FBT001 - what work returned
        try:
            shown = await as_admin(app, "knowledge.show_domain", domain=domain)
        except NotFound:
            return not is_kept
        return is_kept and (shown["template"], shown["documents"]) == (_TEMPLATE, 1)


class Prunings(Kind):
    """Writes to a board of which only some versions are kept, and runs of the retention that removes the others."""

    name = "prunings"
    pause_seconds = 0.1

    async def work(self, number: int) -> tuple[str, str]:
        key, value = f"r{number % 5}", f"pruned {number}"
        await self.client.call("PUT", f"/v1/sessions/{PRUNED}/context/{key}", {"value": value})
        await self.client.call("POST", "/v1/history-prune", {"context_id": f"board:{PRUNED}"})
        return key, value

    async def found(self, app: App) -> int:
        """Return all of them if the last value of each key is there and the history is intact."""
        last = dict(self.acknowledged)
        current = {key: await as_agent(app, "board.read", session_id=PRUNED, key=key) for key in last}
        # A later write may have been stored without an answer.
        is_kept = all(_number(current[key]["value"]) >= _number(value) for key, value in last.items())
        verified = await as_admin(app, "history.verify", context_id=f"board:{PRUNED}", deep=True)
        return len(self.acknowledged) if is_kept and verified["intact"] else 0


def _number(value: str) -> int:
    return int(value.rpartition(" ")[2])


class ModelMigrations(Kind):
    """Migrations between two embedding models, back and forth."""

    name = "migrations"
    pause_seconds = 0.5

    def __init__(self, server: RunningServer, models: tuple[str, str]) -> None:
        super().__init__(server)
        self._models = models

    async def work(self, number: int) -> str:
        del number
        model = self._models[len(self.acknowledged) % 2]
        while self.acknowledged and not _is_over(await self.client.call("GET", "/v1/models/migration")):  # noqa: ASYNC110 - another process
            await asyncio.sleep(self.pause_seconds)
        # All at once: there are no queries for a canary to compare.
        body = {"model": model, "min_overlap": 0.0, "shares": [], "keep_hours": 0}
        await self.client.call("POST", "/v1/models/migration", body)
        return model

    async def found(self, app: App) -> int:
        """Return all of them if the last one ends at its model."""
        if not self.acknowledged:
            return 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INDEX_SECONDS):
                while not _is_over(await as_admin(app, "knowledge.show_model_migration")):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        shown = await as_admin(app, "knowledge.show_model_migration")
        is_done = shown["state"] == "done" and shown["to_model"] == self.acknowledged[-1]
        return len(self.acknowledged) if is_done else 0


def _is_over(migration: dict[str, Any]) -> bool:
    return migration["state"] in {"done", "refused", "cancelled", "rolled_back"}


class Backups(Kind):
    """Backups by the command, half of them killed; each that ended well is restored, after a restore that is killed."""

    name = "backups"
    pause_seconds = 8.0

    def __init__(self, server: RunningServer, database: list[str], folder: Path, writes: Writes) -> None:
        super().__init__(server)
        self._database = database
        self._folder = folder
        self._writes = writes

    async def work(self, number: int) -> tuple[Path, int]:
        """Return the file and the number of writes that were acknowledged before."""
        file, before = self._folder / f"backup{number}", len(self._writes.acknowledged)
        status = await _weftline(*self._database, "db", "backup", str(file), killed=number % 2 == 0)
        if status != 0:
            await asyncio.sleep(self.pause_seconds)
            raise OutcomeUnknown
        return file, before

    async def found(self, app: App) -> int:
        del app
        return sum([await self._is_restored(file, before) for file, before in self.acknowledged])

    async def _is_restored(self, file: Path, before: int) -> bool:
        target = ["--data-dir", str(file.with_suffix(".restored"))]
        await _weftline(*target, "db", "restore", str(file), killed=True)
        # Refused if the first one had committed before it was killed: a restore is one transaction.
        await _weftline(*target, "db", "restore", str(file))
        restored = await open_app(str(file.with_suffix(".restored") / "weftline.db"))
        try:
            copy = Writes(RunningServer())
            copy.acknowledged = self._writes.acknowledged[:before]
            return await copy.found(restored) == before
        finally:
            await restored.close()


async def _weftline(*arguments: str, killed: bool = False) -> int:
    """Run the command and return its exit status; kill it after a moment if asked to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "weftline",
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    if killed:
        await asyncio.sleep(random.uniform(0.3, 1.5))
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return await process.wait()
