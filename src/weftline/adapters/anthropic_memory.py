"""The memory tool of Anthropic's SDK over an agent's persistent memory: versions, history, search and guardrails.

Claude's files are entries of the memory type learned_knowledge, ``memories/PATH``. They answer as the SDK's own tool on
a local folder does; only folders have no size.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any, Literal

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.keys import escape, unescape
from weftline.errors import Conflict, Forbidden, Rejected, VersionConflict

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
except ImportError as error:
    raise missing_framework("anthropic", error) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from weftline.client._operations import Operations, SyncOperations

_ROOT = "/memories"
_KEYS = "memories/"
_TYPE: Literal["learned_knowledge"] = "learned_knowledge"
_MAX_KEY = 200
_PAGE, _MAX_PUSHED = 200, 200
_WIDTH = len("999999")
_FOLDER_SIZE = "4K"
# By path below the root: a text, or None for a folder.
Files = dict[str, str | None]


class MemoryFiles:
    """Files and folders, and the commands on them. A command that fails raises ToolError, and changes nothing."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def run(self, command: Any) -> str:  # noqa: ANN401 - one of six commands
        """Perform a command and return what the model reads."""
        result: str = getattr(self, f"_{command.command}")(command)
        return result

    def _view(self, command: Any) -> str:  # noqa: ANN401
        path = _resolved(command.path)
        if path and path not in self.files:
            raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
        text = self.files.get(path)
        if text is None:
            listed = "".join(f"\n{size}\t{command.path}/{name}" for size, name in self._listed(path, 1))
            return (
                f"Here're the files and directories up to 2 levels deep in {command.path}, excluding hidden items:\n"
                f"{_FOLDER_SIZE}\t{command.path}{listed}"
            )
        lines, first = text.split("\n"), 1
        if command.view_range and len(command.view_range) == 2:  # noqa: PLR2004 - a first and a last line
            start, end = command.view_range
            first = max(1, start)
            lines = lines[first - 1 : len(lines) if end == -1 else end]
        return f"Here's the content of {command.path} with line numbers:\n{_numbered(lines, first)}"

    def _create(self, command: Any) -> str:  # noqa: ANN401
        path = _resolved(command.path)
        if not path or path in self.files:
            raise ToolError(f"File {command.path} already exists")
        self._make_folders(path, command.path)
        self.files[path] = command.file_text
        return f"File created successfully at: {command.path}"

    def _str_replace(self, command: Any) -> str:  # noqa: ANN401
        path, text = self._text(command.path)
        places = [match.start() for match in re.finditer(f"(?={re.escape(command.old_str)})", text)]
        if not places:
            raise ToolError(
                f"No replacement was performed, old_str `{command.old_str}` did not appear verbatim in {command.path}."
            )
        if text.count(command.old_str) > 1:
            lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{command.old_str}` in lines: {lines}. "
                "Please ensure it is unique"
            )
        changed = text.replace(command.old_str, command.new_str)
        self.files[path] = changed
        at, lines_after = text.count("\n", 0, places[0]), changed.split("\n")
        first = max(0, at - 2)
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            f"{_numbered(lines_after[first : at + 3], first + 1)}"
        )

    def _insert(self, command: Any) -> str:  # noqa: ANN401
        path, text = self._text(command.path)
        lines = text.removesuffix("\n").split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        joined = "\n".join(lines)
        self.files[path] = joined if joined.endswith("\n") else f"{joined}\n"
        return f"The file {command.path} has been edited."

    def _delete(self, command: Any) -> str:  # noqa: ANN401
        path = _resolved(command.path)
        if not path:
            raise ToolError(f"Cannot delete the {_ROOT} directory itself")
        if path not in self.files:
            raise ToolError(f"The path {command.path} does not exist")
        for each in self._below(path):
            del self.files[each]
        return f"Successfully deleted {command.path}"

    def _rename(self, command: Any) -> str:  # noqa: ANN401
        old, new = _resolved(command.old_path), _resolved(command.new_path)
        if not old:
            raise ToolError(f"Cannot rename the {_ROOT} directory itself")
        if not new or new in self.files:
            raise ToolError(f"The destination {command.new_path} already exists")
        if old not in self.files:
            raise ToolError(f"The path {command.old_path} does not exist")
        if f"{new}/".startswith(f"{old}/"):
            raise ToolError(f"The path {command.old_path} cannot be moved into itself")
        self._make_folders(new, command.new_path)
        for each in self._below(old):
            self.files[f"{new}{each.removeprefix(old)}"] = self.files.pop(each)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def _text(self, shown: str) -> tuple[str, str]:
        path = _resolved(shown)
        if path and path not in self.files:
            raise ToolError(f"The path {shown} does not exist. Please provide a valid path.")
        text = self.files.get(path)
        if text is None:
            raise ToolError(f"The path {shown} is not a file.")
        return path, text

    def _below(self, path: str) -> list[str]:
        return [each for each in self.files if each == path or each.startswith(f"{path}/")]

    def _make_folders(self, path: str, shown: str) -> None:
        parts = path.split("/")[:-1]
        folders = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        if any(self.files.get(folder) is not None for folder in folders):
            raise ToolError(f"The path {shown} is below a file.")
        self.files.update(dict.fromkeys(folders))

    def _listed(self, folder: str, depth: int) -> list[tuple[str, str]]:
        prefix = f"{folder}/" if folder else ""
        below = {path.removeprefix(prefix): text for path, text in self.files.items() if path.startswith(prefix)}
        listed: list[tuple[str, str]] = []
        for name in sorted(each for each in below if "/" not in each and not each.startswith(".")):
            text = below[name]
            if text is not None:
                listed.append((_size(len(text.encode())), name))
                continue
            listed.append((_FOLDER_SIZE, f"{name}/"))
            if depth == 1:
                listed += [(size, f"{name}/{each}") for size, each in self._listed(f"{prefix}{name}", 2)]
        return listed


class _Memory:
    """Performs commands on the memory of the agent that a client acts as."""

    def __init__(self, weftline: Operations | SyncOperations) -> None:
        # What fails is told to the model: the SDK knows no memory to go on with.
        self.bridge = Bridge(weftline, strict=True)
        self._weftline = self.bridge.weftline

    def perform(self, change: Callable[[MemoryFiles], str], reason: str) -> Generator[Any, Any, str]:
        """Do something with the files, again if the memory was changed meanwhile."""
        while True:
            try:
                before, version = yield from self._files()
                memory = MemoryFiles(dict(before))
                answer = change(memory)
                yield from self._push(before, memory.files, version, reason)
            except VersionConflict:
                continue
            except (Conflict, Forbidden, Rejected) as refused:
                raise ToolError(f"{refused.message} {refused.hint}") from refused
            except ToolError:
                raise
            except Exception as failed:
                self.bridge.note(failed)
                raise ToolError("The memory cannot be reached now. Go on without it.") from failed
            else:
                return answer

    def _files(self) -> Generator[Any, Any, tuple[Files, int]]:
        files: Files = {}
        cursor = None
        while True:
            page = yield self._weftline.context.read(memory_type=_TYPE, limit=_PAGE, cursor=cursor)
            for entry in page.entries:
                if entry.key.startswith(_KEYS):
                    if entry.truncated:
                        entry = (yield self._weftline.context.read(memory_type=_TYPE, key=entry.key)).entries[0]  # noqa: PLW2901
                    path = "/".join(unescape(part) for part in entry.key.removeprefix(_KEYS).split("/"))
                    files[path] = entry.value if isinstance(entry.value, str) else None
            if not page.has_more:
                return files, page.version
            cursor = page.next_cursor

    def _push(self, before: Files, after: Files, version: int, reason: str) -> Generator[Any, Any, None]:
        written = [
            {"key": _key(path), "value": text}
            for path, text in after.items()
            if path not in before or before[path] != text
        ]
        removed = [{"key": _key(path)} for path in before if path not in after]
        while written or removed:
            pushed = yield self._weftline.context.push(
                written[:_MAX_PUSHED], remove=removed[:_MAX_PUSHED], if_version=version, reason=reason
            )
            version, written, removed = pushed.version, written[_MAX_PUSHED:], removed[_MAX_PUSHED:]


def _clear(memory: MemoryFiles) -> str:
    memory.files.clear()
    return "All memory cleared"


class WeftlineMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for ``Anthropic``; with any client of Weftline."""

    def __init__(self, weftline: Operations | SyncOperations, **options: Any) -> None:  # noqa: ANN401 - the SDK's
        super().__init__(**options)
        self._memory = _Memory(weftline)

    def execute(self, command: Any) -> str:  # noqa: ANN401 - one of six commands
        return self._memory.bridge.run(self._memory.perform(lambda files: files.run(command), command.command))

    view = create = str_replace = insert = delete = rename = execute

    def clear_all_memory(self) -> str:
        return self._memory.bridge.run(self._memory.perform(_clear, "clear"))


class AsyncWeftlineMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for ``AsyncAnthropic``; with any client of Weftline."""

    def __init__(self, weftline: Operations | SyncOperations, **options: Any) -> None:  # noqa: ANN401 - the SDK's
        super().__init__(**options)
        self._memory = _Memory(weftline)

    async def execute(self, command: Any) -> str:  # noqa: ANN401 - one of six commands
        return await self._memory.bridge.arun(self._memory.perform(lambda files: files.run(command), command.command))

    view = create = str_replace = insert = delete = rename = execute

    async def clear_all_memory(self) -> str:
        return await self._memory.bridge.arun(self._memory.perform(_clear, "clear"))


def _resolved(path: str) -> str:
    """Return a path below the root; the root itself is empty."""
    if not path.startswith(_ROOT):
        raise ToolError(f"Path must start with {_ROOT}, got: {path}")
    below = posixpath.normpath(path.removeprefix(_ROOT).lstrip("/") or ".")
    if below.startswith(".."):
        raise ToolError(f"Path {path} would escape {_ROOT} directory")
    if below == ".":
        return ""
    if len(_key(below)) > _MAX_KEY:
        raise ToolError(f"The path {path} is too long: give it at most {_MAX_KEY} letters.")
    return below


def _key(path: str) -> str:
    return _KEYS + "/".join(escape(part) for part in path.split("/"))


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def _size(count: int) -> str:
    """Return a number of bytes in the largest unit that it has one of."""
    for power, unit in ((3, "G"), (2, "M"), (1, "K")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f}".removesuffix(".0") + unit
    return f"{count}B"
