"""Plans the restore of windows: the commits of their lines, their checkpoints and their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.exchange.transfer.bundle_format import BundleWindow
from weftline.exchange.transfer.restore_board import BoardPlan, NewCommits, NewTag
from weftline.history.model import Change, ChangeKind, ChangeMeta, blob_hash
from weftline.kernel.clock import to_micros
from weftline.windows.model import WindowSettings, content_key, window_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weftline.exchange.transfer.decode import WindowVersion
    from weftline.exchange.transfer.restore_board import BoardStep
    from weftline.exchange.transfer.validate_bundle import WindowUse
    from weftline.kernel.identity import Actor


class WindowStep(NamedTuple):
    """Commits or a checkpoint of the line of a window."""

    line_id: str
    step: NewCommits | NewTag


class NewWindow(NamedTuple):
    """The settings of a window."""

    settings: WindowSettings


class WindowPlans:
    """Plans the restore of all windows of a session."""

    def __init__(
        self,
        emit: Callable[[WindowStep | NewWindow], None],
        session_id: str,
        actor: Actor,
        uses: Mapping[str, WindowUse],
        *,
        history: bool,
    ) -> None:
        self._emit = emit
        self._session_id = session_id
        self._actor = actor
        self._history = history
        self._lines: dict[str, BoardPlan] = {}
        # The last change of each content that is a value of its own.
        self._contents: dict[tuple[str, str], Change] = {}
        self._windows: list[BundleWindow] = []
        self._uses = uses

    def add(self, made: WindowVersion | BundleWindow) -> None:
        if isinstance(made, BundleWindow):
            self._windows.append(made)
            for checkpoint in made.checkpoints:
                self._line(self._line_id(made)).add_snapshot(checkpoint)
            return
        line = self._line(made.line_id)
        line.add(made.version)
        content = self._content(made)
        if content is not None:
            line.add(structs.replace(made.version, change=content, value=made.content))

    def finish(self, now: int) -> None:
        for window in self._windows:
            use = self._uses[window.agent_id]
            fields = structs.asdict(window) | {
                "session_id": self._session_id,
                "created_at": to_micros(window.created_at),
                "updated_at": to_micros(window.updated_at),
                "unsaved_since": None,
                "last_number": use.events,
                "stored_bytes": use.bytes,
            }
            self._emit(NewWindow(WindowSettings(**{name: fields[name] for name in WindowSettings.__struct_fields__})))
        for line in self._lines.values():
            line.finish({}, now, is_open=False)

    def _line_id(self, window: BundleWindow) -> str:
        return window_line(self._session_id, window.agent_id)

    def _line(self, line_id: str) -> BoardPlan:
        if line_id not in self._lines:
            emit = self._emitter(line_id)
            self._lines[line_id] = BoardPlan(emit, line_id, self._actor, history=self._history)
        return self._lines[line_id]

    def _emitter(self, line_id: str) -> Callable[[BoardStep], None]:
        def emit(step: BoardStep) -> None:
            # The entries of a window are not stored besides its history, and do not expire.
            if isinstance(step, NewCommits | NewTag):
                self._emit(WindowStep(line_id, step))

        return emit

    def _content(self, made: WindowVersion) -> Change | None:
        """Return what a version of an event changes in its separate content; None if there is none."""
        name = made.line_id, content_key(made.version.change.key)
        last = self._contents.get(name)
        is_live = last is not None and last.act is ChangeKind.WRITE
        if made.content is not None:
            incarnation = 1 if last is None else last.incarnation + (not is_live)
            number = last.version + 1 if last is not None and is_live else 1
            meta = ChangeMeta(size=len(made.content.encode()), trust=made.version.change.meta.trust)
            change = Change(name[1], incarnation, number, ChangeKind.WRITE, blob_hash(made.content), meta)
        elif last is not None and is_live:
            change = Change(name[1], last.incarnation, last.version, ChangeKind.DELETE, None, ChangeMeta())
        else:
            return None
        self._contents[name] = change
        return change
