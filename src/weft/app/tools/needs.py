"""What agents want when they need a tool, in everyday words: the tool search ranks these beside the descriptions.

Descriptions use the product's nouns (board, window, domain); those who ask do not know them yet. Each tool, or action
of a grouped tool, has a few short phrases that name the need with other words than its description does.
"""

from __future__ import annotations

NEEDS: dict[str, tuple[str, ...]] = {
    "shared_context.list_keys": (
        "see what is on the shared board without the contents",
        "overview of the entries that the agents share",
        "what state has been written so far",
    ),
    "shared_context.read": ("get the value of one shared entry", "look up a key on the shared board"),
    "shared_context.read_batch": ("get several shared values at once", "read many board keys together"),
    "shared_context.write": (
        "tell everyone a decision, result or the current state",
        "save a conclusion where all agents can see it",
        "set or update a shared value",
    ),
    "shared_context.delete": ("remove a settled or outdated shared entry", "clear a key of the shared board"),
    "shared_context.read_history": (
        "what did this shared key contain before, and who set it",
        "previous values of one shared entry",
    ),
    "shared_context.snapshot": (
        "save the shared board under a name before a risky change",
        "keep a backup of the shared state to return to",
    ),
    "shared_context.list_snapshots": ("which saved states of the shared board exist",),
    "shared_context.read_snapshot": ("look at the shared board as it was when it was saved under a name",),
    "shared_context.compare_snapshots": (
        "what is different on the shared board since a saved state",
        "changes of the shared state between two saved states",
    ),
    "shared_context.restore_snapshot": (
        "put the whole shared board back to a saved state",
        "undo everything since the named backup of the board",
    ),
    "get_board_guidance": (
        "rules and advice for the shared board",
        "which keys are agreed on and what belongs on the board",
        "how should I name and fill the entries that agents share",
    ),
    "define_conventions": (
        "prescribe the key names that agents use in a field of work",
        "agree on standard names of shared entries for a department",
    ),
    "list_conventions": ("which standard sets of key names are there",),
    "check_board": (
        "are there secrets, passwords or personal data among the shared entries",
        "find credentials, phone numbers, stale or duplicate entries on the shared board",
        "clean up and review the quality of the shared state",
    ),
    "create_session": ("start a new project, workspace or task", "open a room for agents to work together"),
    "list_sessions": (
        "which projects, workspaces or tasks do I take part in",
        "show my workspaces",
        "find the session I worked in",
    ),
    "archive_session": (
        "close a finished project but keep it readable",
        "make a workspace read-only, nobody may change it any more",
    ),
    "delete_session": (
        "remove a project or workspace permanently",
        "erase a workspace with all its contents",
    ),
    "get_session": ("details of a workspace: what it is for and its settings", "is this workspace still open"),
    "get_session_overview": (
        "summary for someone new: where does the work stand",
        "catch up on a project quickly",
    ),
    "add_message": ("tell, inform or ask the other agents", "post, reply or announce something in the chat"),
    "get_messages": ("what have the others said", "read the latest posts and replies", "read the chat of the project"),
    "set_message_visibility": (
        "hide a post from others, or show it",
        "restrict who can see a message that was posted by mistake",
    ),
    "inspect_messages": (
        "read private posts of others as an admin, for an investigation",
        "see all messages including the hidden ones",
    ),
    "ingest_event": (
        "record what the user said, what I answered and tool results in my conversation",
        "add a turn to my own chat history",
    ),
    "context_window.create": (
        "set up a conversation with a token limit for an agent",
        "give a new agent its own chat history and budget",
    ),
    "context_window.show": (
        "how full is my conversation, how many tokens are left",
        "use and remaining budget of my chat history",
        "limits of my conversation by category",
    ),
    "context_window.list": (
        "which conversations of agents can I open",
        "overview of the chat histories of the agents in a project",
    ),
    "context_window.events": (
        "read my own chat history again",
        "the last turns of a conversation with the model",
        "what did I and the user say, which tools did I call",
    ),
    "context_window.update": ("change the model or the limit of a conversation", "I use another model now"),
    "context_window.delete": ("remove a conversation of an agent", "erase a chat history"),
    "context_window.refresh": (
        "get the newer instructions of my parent agent",
        "update what I inherited from the agent that started me",
    ),
    "context_window.join": (
        "two agents work in one conversation",
        "let one agent share the chat history of another",
    ),
    "context_window.leave": (
        "stop sharing a conversation with another agent",
        "go back to my own chat history",
    ),
    "context_window.route": (
        "other agents should see part of a conversation, such as tool results or decisions",
        "forward what one agent finds to reviewers without a copy",
    ),
    "context_window.unroute": (
        "other agents should no longer see that part of a conversation",
        "end forwarding results to other agents",
    ),
    "context_window.checkpoint": (
        "mark a point in all conversations to be able to return to it",
        "save the state of the chat histories before an experiment",
    ),
    "context_window.checkpoints": ("which saved points of the conversations exist",),
    "context_window.restore": (
        "set the conversations back to a saved point",
        "undo what was said since the mark",
    ),
    "context_window.branch": (
        "continue a conversation in a second direction from a saved point",
        "fork the chat histories to explore an alternative",
    ),
    "assemble_context": (
        "make the prompt for my next request to the model",
        "pack everything relevant into a token budget",
    ),
    "emit_metrics": (
        "report how many tokens the provider really counted or billed",
        "pass on the usage that the model returned",
    ),
    "receipts.show": (
        "why was something in my prompt, or missing from it",
        "explain what a prompt contained and what was left out",
    ),
    "receipts.list": ("which prompts were built recently", "my latest prompts"),
    "receipts.replay": (
        "get an old prompt again, exactly as it was sent",
        "reproduce what the model was given on another day",
    ),
    "receipts.savings": ("how many tokens and how much money were saved", "costs of prompts and what we save"),
    "search": (
        "find out whether anything is known about a subject",
        "look something up in documents, messages and memory",
        "answer a question from what we have",
    ),
    "find_similar": (
        "other passages that say almost the same",
        "are there duplicates or texts like this one",
    ),
    "pins.add": ("this must never be forgotten in any prompt", "always include this fact or message"),
    "pins.remove": ("this no longer needs to be in every prompt", "unpin a message or fact"),
    "pins.list": ("what is always included in the prompts", "which things are pinned"),
    "get_context": (
        "a text of background on a subject to paste into a prompt, of limited length",
        "collect the best passages about a question into one text",
    ),
    "search_context": (
        "find a message of this project by some of its words",
        "who mentioned something in the chat, wording unknown",
        "search the conversation of the agents for a term",
    ),
    "search_by_sender": (
        "all messages that one agent wrote",
        "what has a certain agent or person posted",
    ),
    "search_by_timerange": (
        "messages of a day, or between two times",
        "what was said yesterday or this morning",
    ),
    "knowledge.create_domain": (
        "new collection or library of documents with its own readers",
        "set up a place for documents of a department",
    ),
    "knowledge.list_domains": (
        "which collections or libraries of documents are there",
        "what document collections may I use",
    ),
    "knowledge.show_domain": ("details of a document collection: who may read it", "is the collection indexed"),
    "knowledge.update_domain": (
        "change who may read a document collection",
        "give others access to the documents of a library",
        "rename or describe a collection",
    ),
    "knowledge.delete_domain": ("remove a whole collection of documents",),
    "knowledge.reindex": (
        "process all documents of a collection again",
        "rebuild the index of one library after a change",
    ),
    "knowledge.add_document": (
        "upload a file, page or manual",
        "save a text in a document collection so that it can be found",
        "replace a document by a newer one",
    ),
    "knowledge.add_documents": (
        "upload many files in one call",
        "import several pages together, all or none",
    ),
    "knowledge.list_documents": ("which files are in a collection", "table of contents of a library"),
    "knowledge.get_document": (
        "has an uploaded file been processed, or did it fail",
        "status and versions of one document",
    ),
    "knowledge.read_document": ("the whole text of a file or page", "open a document and read it"),
    "knowledge.delete_document": (
        "remove an outdated file so that nobody finds it",
        "take a page out of a collection",
    ),
    "knowledge.reindex_all": ("rebuild the complete search index", "index everything again"),
    "knowledge.show_reindexing": ("how far is rebuilding the index",),
    "set_memory": ("note something for myself", "remember a private value, maybe for a limited time"),
    "get_memory": ("what did I note about something", "read back my private note"),
    "list_memory": ("which private notes do I have", "names and sizes of my notes"),
    "delete_memory": (
        "forget or remove one of my own notes",
        "a private note is obsolete",
    ),
    "get_memory_overview": (
        "all my notes with their contents",
        "dump everything in my private memory",
    ),
    "inspect_memory": (
        "read the private notes of another agent as an admin",
        "what has an agent stored about somebody",
    ),
    "push_context": (
        "keep a lesson or fact for all later sessions",
        "save what I learned for good",
        "remember across projects",
    ),
    "pull_context": (
        "load my long-term knowledge into this project and fix its version",
        "start work with what I learned earlier",
    ),
    "read_context": (
        "read my long-term memory",
        "show the knowledge that I loaded for this project",
    ),
    "get_context_status": (
        "is the knowledge that I loaded still up to date",
        "is there a newer version of my long-term memory",
    ),
    "copy_context": (
        "give an agent the long-term memory of another agent",
        "a successor takes over all experience and lessons",
    ),
    "define_agent": ("set the role, system prompt and guardrails of an agent", "change an agent's instructions"),
    "read_definition": (
        "what are my role and my instructions",
        "read the system prompt that was set for an agent",
    ),
    "context_layers.define": (
        "set a policy that begins every prompt of the company or a team",
        "house rules for all agents",
    ),
    "context_layers.show": (
        "which policies and rules begin my prompts",
        "read the house rules that apply to me",
    ),
    "context_layers.list": ("which policies and guidelines are defined in the company",),
    "inspect_session": (
        "see everything on the shared board of a project as an admin, even what is restricted",
        "audit all values of a workspace",
    ),
    "context_history.log": (
        "who changed something, when and why",
        "list of all changes of the shared state, newest first",
    ),
    "context_history.show": ("details of one particular change",),
    "context_history.state": (
        "what did everything look like at an earlier version or time",
        "the shared state of last week",
    ),
    "context_history.blame": (
        "who is responsible for each current value",
        "which agent wrote every entry last",
    ),
    "context_history.diff": (
        "what changed between two versions",
        "compare an old version with the current one",
    ),
    "context_history.verify": (
        "prove that the history was not manipulated",
        "check integrity, detect tampering",
    ),
    "context_history.bisect": (
        "when did a wrong value or text first appear",
        "find the change that introduced a mistake",
    ),
    "context_history.snapshot": ("give the present version a name, of a board or of an agent's memory",),
    "context_history.delete_snapshot": ("remove a named version that is no longer needed",),
    "context_history.snapshots": ("all named versions of everything",),
    "context_history.context_snapshots": ("named versions of one board or memory",),
    "rollback_context": (
        "undo changes and return to an earlier version",
        "things went wrong, go back in time",
        "revert the shared state or a memory to how it was before",
    ),
    "context_history.branch": (
        "try something without touching the original",
        "work on a separate copy of the shared state",
    ),
    "context_history.branches": ("which separate copies or lines of work exist",),
    "context_history.switch": ("work on another branch from now on",),
    "context_history.delete_branch": ("throw away an attempt on a separate copy",),
    "context_history.merge": (
        "bring the results of a separate copy back into the original",
        "combine two lines of work",
    ),
    "context_history.reviews": (
        "conflicts that wait for a decision",
        "which merges need somebody's approval",
    ),
    "context_history.review": ("look at one conflict with both values",),
    "context_history.resolve": (
        "decide a conflict: take ours or theirs for each key",
        "finish a merge by choosing values",
    ),
    "context_history.close_review": ("reject a merge, leave both sides as they are",),
    "context_history.set_retention": (
        "old versions may be deleted after some time",
        "limit how long or how many versions are kept",
    ),
    "context_history.clear_retention": ("go back to the default rule for keeping old versions",),
    "context_history.retention": ("how long are old versions kept",),
    "context_history.prune": ("delete old versions now", "free space by removing old history"),
    "context_history.prune_log": (
        "what did the automatic deletion of old versions remove",
        "log of the clean-up of history",
    ),
    "context_records.add": (
        "put on record what another framework selected, assembled or compacted",
        "log the passages that my own software chose for a prompt",
    ),
    "context_records.set_lifecycle": ("mark a recorded context as injected, used or discarded",),
    "context_records.list": (
        "everything that happened in a turn or task, as portable records",
        "trace of what was done with context",
    ),
    "context_records.show": ("open one portable record by its id",),
    "context_records.schema": (
        "which fields must a record of a type have",
        "format and required fields of a record",
    ),
    "context_records.redact": (
        "black out or mask an item in exports and records, keep the stored original",
        "outsiders must not see the content of an entry",
    ),
    "context_records.resolve": (
        "is a quotation still in its source",
        "find the cited sentence in the current text",
    ),
    "export_context": (
        "hand a project to somebody else as one file",
        "download everything of a session or task",
    ),
    "import_context": (
        "load a file with a session that others sent",
        "restore an exported project",
    ),
    "export_policies.set": (
        "rule for what may leave the company in an export",
        "partners only get masked or filtered data",
    ),
    "export_policies.list": ("which rules apply to exports",),
    "export_policies.delete": ("remove a rule for exports",),
    "knowledge.embed": (
        "turn sentences into vectors",
        "get the embedding of a text for clustering or comparison",
    ),
    "knowledge.add_source": (
        "keep a folder, website or feed in sync with a document collection",
        "load files of a directory automatically",
    ),
    "knowledge.list_sources": (
        "did the last synchronisation of folders and websites succeed",
        "which folders and websites feed a collection",
    ),
    "knowledge.update_source": ("synchronise a folder more or less often", "pause or resume synchronisation"),
    "knowledge.remove_source": ("stop synchronising a folder or website",),
    "knowledge.sync_source": (
        "fetch changes of a folder or website immediately",
        "run the synchronisation now",
    ),
    "knowledge.list_models": ("which embedding models can be used",),
    "knowledge.allow_models": ("permit only certain embedding models",),
    "knowledge.start_model_migration": (
        "switch the search to a better embedding model",
        "change the model that makes the vectors",
    ),
    "knowledge.show_model_migration": (
        "how far is the change to another embedding model",
        "progress of switching models",
    ),
    "knowledge.cancel_model_migration": ("stop switching to another embedding model",),
    "missing_context.report": (
        "I do not know something and do not want to guess",
        "information is lacking to go on",
    ),
    "missing_context.list": (
        "open questions that nobody has answered yet",
        "what do we still not know",
    ),
    "missing_context.resolve": (
        "answer an open question of another agent",
        "I know what somebody was missing",
    ),
    "missing_context.request": (
        "ask the user or another agent for information that is lacking",
        "have somebody find out what we do not know",
    ),
    "read_events": (
        "wait until something changes, get notified instead of polling",
        "follow what happens, live",
    ),
    "webhooks.create": (
        "call my own service or URL when something changes",
        "push notifications of events to another system",
    ),
    "webhooks.list": ("which external services are notified of events",),
    "webhooks.update": ("pause notifications to an external service, or resume them",),
    "webhooks.delete": ("stop notifying an external service for good",),
    "webhooks.test": ("try out whether a service receives notifications",),
    "webhooks.deliveries": ("which notifications failed or are pending",),
    "webhooks.replay": (
        "send failed notifications to a service again",
        "repeat lost deliveries",
    ),
    "authenticate_agent": ("log in, get a temporary token",),
    "refresh_token": ("extend my login before it expires",),
    "revoke_token": ("log out, make a temporary token invalid",),
    "create_agent": (
        "register a new agent or person and get a credential",
        "add a user or bot to the tenant",
    ),
    "list_agents": (
        "which agents, people and users are registered",
        "everybody in our tenant",
    ),
    "update_agent": (
        "change rights: allow or forbid writing, raise clearance",
        "block or disable an agent or person",
    ),
    "create_api_key": ("a second credential for an agent",),
    "list_api_keys": ("which credentials does an agent have",),
    "rotate_key": (
        "a credential leaked, exchange it for a new one",
        "renew a password or secret",
    ),
    "revoke_key": (
        "a credential must stop working",
        "somebody left the company: block the access",
    ),
    "rotate_signing_key": ("make all temporary tokens invalid by a new signing secret",),
    "teams.create": (
        "form a group of agents and people",
        "new group that shares knowledge",
    ),
    "teams.list": ("which groups am I in", "all groups of agents"),
    "teams.show": ("who belongs to a group",),
    "teams.update": ("describe a group differently",),
    "teams.delete": ("dissolve a group",),
    "teams.add_member": (
        "somebody joins a group",
        "put another agent into a group",
    ),
    "teams.remove_member": ("somebody leaves a group", "take an agent out of a group"),
    "get_audit_log": (
        "who was denied access, and what did admins change",
        "security log for compliance",
    ),
    "get_performance_metrics": (
        "is the server slow: load, latency, memory",
        "health and speed of the system",
    ),
    "get_usage_guidance": (
        "what may I do here, where do I begin",
        "help, my rights and first steps",
    ),
}
