"""Operations as MCP tools: the tools a caller sees, and the operation of a tool call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.app.dispatch import may_use
from weft.kernel.errors import InvalidInput, UnknownOperation
from weft.kernel.identity import Permission
from weft.kernel.operation import Effect, SessionUse
from weft.kernel.schema import ACTION, standalone, tool_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation, Registry

_SESSION = "session_id"
# Request fields that name a context in history.
LINE_FIELDS = ("context_id", "from_context_id", "other_context_id")


@dataclass(frozen=True, slots=True)
class ToolView:
    """Tool as one caller sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    read_only: bool


class Toolbox:
    """All tools, with a cached view for each set of allowed operations."""

    def __init__(self, registry: Registry) -> None:
        self._tools = registry.tools()
        self._views: dict[tuple[frozenset[str], bool], list[ToolView]] = {}

    def visible_to(self, actor: Actor, *, in_session: bool) -> list[ToolView]:
        """Return the tools an actor may call; inside a session they need no session_id."""
        allowed = frozenset(o.name for operations in self._tools.values() for o in operations if may_use(o, actor))
        views = self._views.get((allowed, in_session))
        if views is None:
            views = self._views[allowed, in_session] = [
                _view([o for o in operations if o.name in allowed], in_session=in_session)
                for operations in self._tools.values()
                if any(o.name in allowed for o in operations)
            ]
        return views

    def resolve(self, name: str, arguments: Mapping[str, Any]) -> tuple[Operation, Mapping[str, Any]]:
        """Return the operation of a tool call and its request."""
        operations = self._tools.get(name)
        if operations is None:
            raise UnknownOperation(f"There is no tool named '{name[:100]}'.")
        operation = _by_action(operations, arguments)
        raw = {key: value for key, value in arguments.items() if key != ACTION} if operation.action else arguments
        return operation, raw


def _by_action(operations: Sequence[Operation], arguments: Mapping[str, Any]) -> Operation:
    if operations[0].action is None:
        return operations[0]
    action = arguments.get(ACTION)
    found = next((operation for operation in operations if operation.action == action), None)
    if found is None:
        actions = [operation.action for operation in operations]
        problem = "is required" if ACTION not in arguments else f"'{str(action)[:60]}' is not one of them"
        raise InvalidInput(
            f"action: {problem}; use one of {', '.join(map(str, actions))}", field=ACTION, actions=actions
        )
    return found


def works_in_session(operation: Operation) -> bool:
    """Return whether an operation works in the session of its session_id."""
    return operation.session is SessionUse.WORKS_IN and _SESSION in operation.request.__struct_fields__


def _view(operations: Sequence[Operation], *, in_session: bool) -> ToolView:
    first = operations[0]
    grouped = first.action is not None
    naming = [operation for operation in operations if _SESSION in operation.request.__struct_fields__]
    bound = in_session and all(map(works_in_session, naming))
    description = GROUPED_HELP[first.tool] if grouped else first.help.replace("``", "`")
    names_lines = any(field in LINE_FIELDS for o in operations for field in o.request.__struct_fields__)
    return ToolView(
        name=first.tool,
        description=f"{description} {_OWN_BOARD}" if in_session and names_lines else description,
        input_schema=tool_schema(operations, without=frozenset({_SESSION} if bound else ())),
        output_schema=None if grouped else standalone(first.response),
        read_only=all(map(_only_reads, operations)),
    )


def _only_reads(operation: Operation) -> bool:
    """Return whether an operation changes nothing; with its own transactions, only if it is not audited."""
    if operation.effect is Effect.OWN_TRANSACTIONS:
        return not operation.audited and operation.permission is not Permission.WRITE
    return operation.effect is not Effect.WRITE


_OWN_BOARD = "The context_id of your session's board is board, or board@BRANCH for a branch of it."
# Descriptions of tools with several operations; others use the help of their operation.
GROUPED_HELP = {
    "shared_context": (
        "The board: key-value state shared by all agents of a session. Store conclusions, decisions and open "
        "questions, never raw data or secrets. Call list_keys first, read only what you need, update keys instead of "
        "adding new ones, and delete what is settled."
    ),
    "context_history": (
        "The history of boards and agent contexts: who changed what and why, the state at any version, "
        "what differs between two; snapshots, branches and merges. Each has a context_id such as "
        "board:SESSION. Begin with log; to go back to a version use rollback_context."
    ),
    "context_layers": (
        "The layers that begin every prompt: platform rules, tenant policies, team guidelines, persona. show returns "
        "those of an agent. Humans with the clearance list and define them; agents cannot change layers."
    ),
    "teams": (
        "Teams: named groups of agents and humans with shared memory (push_context with owner team:NAME), guidelines "
        "and a place in ACLs (team:NAME). List yours and show their members. Admins create, update and delete teams; "
        "members with clearance 3 add and remove members below them."
    ),
    "receipts": (
        "Receipts of assembled prompts: show what was included and left out and why, list them, replay a prompt byte "
        "for byte, and add up savings in tokens and money."
    ),
    "context_window": (
        "Windows: each agent's conversation in a session, with a token limit and budgets by category. Show yours and "
        "how full it is, read its events, set its model, refresh what it inherited, share one, route categories to "
        "other agents, and checkpoint, restore or branch several windows at once. Add events with ingest_event."
    ),
    "context_records": (
        "Portable Agent Context records of what happened to context: list them by session, turn, task, item or time, "
        "show one with its content, add those of your own framework (selections, budgets, assemblies, compactions), "
        "set an envelope's lifecycle. Versions of keys and messages are context items with ids such as "
        "board:SESSION/KEY/1.3; read the schema of a type before you add one."
    ),
    "missing_context": (
        "Missing context: questions whose answers somebody needs. Report what you do not know instead of guessing, "
        "request it (from the user, earlier messages, a tool or a peer), list open questions, and resolve what you can "
        "answer."
    ),
    "knowledge": (
        "Knowledge domains and their documents: list domains (list_domains), list and read documents (list_documents, "
        "get_document, read_document), add them (add_document, add_documents) and delete them. To find something, use "
        "search. Admins create, update and delete domains, manage the sources that documents are synchronised from "
        "(add_source, list_sources, update_source, remove_source, sync_source) and rebuild the index (reindex, "
        "reindex_all, show_reindexing). Embedding models: embed returns vectors, list_models lists the models; admins "
        "choose the allowed ones (allow_models) and migrate to another (start_model_migration, show_model_migration, "
        "cancel_model_migration)."
    ),
    "pins": (
        "Pins: messages, board keys and keys of your memory that are part of every prompt and search answer, whatever "
        "the task. Pin what must never be forgotten (a constraint, a decision), list pins, and unpin what is settled."
    ),
    "export_policies": (
        "Export policies: what an export may contain, in which form, and who may use it. List, set and delete "
        "policies; an export records the policy it used."
    ),
    "webhooks": (
        "Webhooks: signed delivery of events to URLs as CloudEvents 1.0. Create, list, update (enable, disable), "
        "delete and test them, list failed deliveries, and replay them."
    ),
}
