// Written by scripts/generate.py from the OpenAPI document; change the operations instead.
import type { CallOptions } from "./client.js";

/** Ids in Agent2Agent. */
export interface A2aMapping {
  native: "a2a"; agent_card_url?: string; task_id?: string; context_id?: string; message_id?: string; part_id?: string;
  artifact_id?: string; skill_id?: string;
}
/** An added record and its event. `known`: an identical record existed already. */
export interface AddedRecord {
  type: string; id: string; seq: number; known?: boolean;
}
/**
 * A recommendation in a list. `safe`: in the trial no prompt loses anything that was useful or required.
 *
 * Tokens and money, in US dollars, are those that the last calls would have saved; null where nothing was replayed.
 */
export interface AdviceItem {
  recommendation_id: string;
  kind: "board_keys" | "compaction" | "documents" | "duplicate_documents" | "learned_memory" | "min_score" | "model" | "pins" | "session_memory" | "stale_context" | "tools" | "window_shares";
  agent_id: string; title: string; safe: boolean; saved_tokens: number | null; saved_ratio: number | null;
  saved_cost: number | null; calls: number;
}
/** Recommendations, safe ones first, then by tokens saved. `analysed`: calls of each agent that were replayed. */
export interface AdviceList {
  recommendations: AdviceItem[]; analysed: Record<string, number>;
}
/**
 * A recommendation with its evidence. `command` makes the change; nothing is switched by showing or trying it.
 *
 * `trial`: what would have changed in the last calls; null if there is nothing to replay.
 */
export interface AdviceShown {
  recommendation_id: string;
  kind: "board_keys" | "compaction" | "documents" | "duplicate_documents" | "learned_memory" | "min_score" | "model" | "pins" | "session_memory" | "stale_context" | "tools" | "window_shares";
  agent_id: string; title: string; reason: string; safe: boolean; evidence: Evidence[]; subjects: string[];
  proposal: ProposedSettings; command: string; trial: Trial | null; analysed_at: string;
}
/**
 * The last calls as they were sent and as they would have been. Nothing was switched.
 *
 * `tried`: each call that the replay reproduces, oldest first.
 */
export interface AdviceTried {
  recommendation_id: string | null; agent_id: string; title: string; proposal: ProposedSettings; command: string;
  trial: Trial; tried: TriedCall[];
}
/**
 * A new principal with its API key, which is shown only once.
 *
 * `existed`: it was there already and is unchanged; `api_key` is then empty.
 */
export interface AgentCreated {
  agent_id: string; agent_type: string; kind: string; participant: string; parent_id: string | null; clearance: number;
  permissions: string[]; created_at: string; disabled: boolean; min_score: number | null; api_key: string;
  existed?: boolean;
}
/** The new definition. Running sessions get it with their next pull; guardrails hold at once. */
export interface AgentDefined {
  success: true; agent_id: string; context_id: string; previous_version: number; version: number; hash: string;
  context_version: number; changed: string[]; defined_at: string;
}
/** An agent's definition, which the agent itself cannot change. */
export interface AgentDefinition {
  role: string | null; system_prompt: string | null; guardrails: Guardrail[]; config: Record<string, unknown>;
}
/** Principals, by id. */
export interface AgentList {
  agents: ListedAgent[]; has_more: boolean;
}
/** The agent that is admitted again; False: it was not refused by itself. */
export interface AgentReinstated {
  success: true; session_id: string; agent_id: string; reinstated: boolean;
}
/** A principal after the change, and what was disabled or enabled with it: the first 100 ids and the number. */
export interface AgentUpdated {
  agent_id: string; agent_type: string; kind: string; participant: string; parent_id: string | null; clearance: number;
  permissions: string[]; created_at: string; disabled: boolean; min_score: number | null; also_disabled?: string[];
  also_enabled?: string[]; also_changed?: number;
  /** After lowering it: agents below it that have more than it now; change them too. */ exceeded_by?: string[];
}
/**
 * An alert. `message` says what it is about, `data` has the figures.
 *
 * `subject` is agent:ID, team:NAME or tenant; `about` the quota or budget. `seen_at` is when the condition last
 * held. A `digest` stands for the alerts of many agents; `digest_id` is the digest that an alert is in. Without
 * `resolved_by`, it was resolved because its condition has ended.
 */
export interface AlertInfo {
  alert_id: string;
  condition: "budget.exceeded" | "budget.near" | "context.overload" | "efficiency.low" | "index.damaged" | "quality.dropped" | "quota.near";
  subject: string; state: "acknowledged" | "open" | "resolved"; message: string; data: Record<string, unknown>;
  opened_at: string; seen_at: string; about?: string; digest?: boolean; digest_id?: string | null;
  acknowledged_at?: string | null; acknowledged_by?: string | null; resolved_at?: string | null;
  resolved_by?: string | null;
}
/** Alerts, newest first; `next_cursor` is set while there are more. */
export interface AlertList {
  alerts: AlertInfo[]; next_cursor?: string | null;
}
/** When calls of agents become an alert; what is not set here is set for a parent, a team or the tenant. */
export interface AlertSettings {
  /** Whether calls are watched; true by default. */ enabled?: boolean | null;
  /** Part of the window from which prompts overload it; 0.8 by default. */ window_fill?: number | null;
  /** Part of the window below which it ends; 0.1 less by default. */ clear_window_fill?: number | null;
  /** Useful part of prompts below which it is low; 0.01 by default. */ efficiency?: number | null;
  /** Useful part from which it is not low any more; a quarter more by default. */ clear_efficiency?: number | null;
  /** Useful part of prompts below which a full window is overloaded; 0.05 by default. */ full_efficiency?: number | null;
  /** Number of latest calls that count; 20 by default. */ calls?: number | null;
}
/** A key with its secret, which is shown only once. */
export interface ApiKeyCreated {
  key_id: string; agent_id: string; created_at: string; expires_at: string | null; revoked_at: string | null;
  tools: string | null; step: string | null; api_key: string;
}
/** A key without its secret. */
export interface ApiKeyInfo {
  key_id: string; agent_id: string; created_at: string; expires_at: string | null; revoked_at: string | null;
  tools: string | null; step: string | null;
}
/** A principal's keys, newest first. */
export interface ApiKeyList {
  keys: ApiKeyInfo[];
}
/** The decision. An approved call has been performed, unless a further check holds it: then `state` is pending. */
export interface ApprovalDecided {
  approval_id: string; state: "approved" | "expired" | "pending" | "performed" | "rejected"; operation: string;
  agent_id: string; reason?: string | null; failed_with?: PerformedError | null;
}
/** A call that waits for a decision, or what became of it. `agent_id` made the call; `check` holds it. */
export interface ApprovalInfo {
  approval_id: string; state: "approved" | "expired" | "pending" | "performed" | "rejected"; operation: string;
  agent_id: string; hold: "approval" | "quarantine"; check: string; reason: string; created_at: string;
  expires_at: string; session_id?: string | null; decided_by?: string | null; decided_at?: string | null;
  decision_reason?: string | null; failed_with?: PerformedError | null;
}
/** Held calls, newest first; `next_cursor` is set while there are more. */
export interface ApprovalList {
  approvals: ApprovalInfo[]; next_cursor?: string | null;
}
/** A held call with its request. `details` is for approvers, `answer` for the caller. */
export interface ApprovalShown {
  approval_id: string; state: "approved" | "expired" | "pending" | "performed" | "rejected"; operation: string;
  agent_id: string; hold: "approval" | "quarantine"; check: string; reason: string; created_at: string;
  expires_at: string; session_id?: string | null; decided_by?: string | null; decided_at?: string | null;
  decision_reason?: string | null; failed_with?: PerformedError | null; request: Record<string, unknown>;
  details?: Record<string, unknown> | null; answer?: unknown;
}
/** One action or denial. */
export interface AuditEntry {
  audit_id: string; at: string; actor: string; agent_id: string | null; action: string; outcome: string; target: string;
  detail: Record<string, unknown>;
}
/** Audit rows, newest first. */
export interface AuditLog {
  entries: AuditEntry[]; has_more: boolean;
}
/** What is done in the background for your tenant; for the operator, the jobs of all tenants. */
export interface BackgroundWork {
  /** Events of your tenant that are not searchable yet. */ index_lag_events: number;
  /** Jobs with work, by name. */ jobs: JobFigures[];
}
/** First version with the text; if there is none, `remark` is the reason. */
export interface Bisected {
  key: string; found: boolean; versions_checked: number; first?: Blame | null; remark?: string | null;
}
/** Last change of an entry: author, time and reason. `version` of PART/KEY counts in the part. */
export interface Blame {
  key: string; author: string; agent_id: string; at: string; version: number; key_version: number; reason: string;
  step?: string | null;
}
/** Entries by key with their last change; `next_cursor` is set while there are more. */
export interface Blamed {
  context_id: string; version: number; entries: Blame[]; next_cursor: string | null;
}
/** Blocks of one kind: their number, tokens and items; those of summaries are the events that they stand for. */
export interface BlockSummary {
  kind: string; blocks: number; tokens: number; items: number;
}
/** Problems of the keys you may read; values are not quoted. */
export interface BoardCheck {
  findings: BoardFinding[]; checked: number; clean: boolean;
}
/** One problem of one key. */
export interface BoardFinding {
  key: string; problem: "near_duplicate" | "personal_data" | "raw_dump" | "secret" | "stale" | "unread"; detail: string;
  suggestion: string; other_key?: string | null;
}
/** Size of the board, including keys you cannot read. */
export interface BoardSize {
  total_size_tokens: number; limit_tokens: number; value_limit_tokens: number; key_count: number;
}
/** The branch is deleted. `version` and `hash` are those of its last commit. */
export interface BranchDeleted {
  deleted: string; version: number; hash: string;
}
/** A branch: its current version, and the context and version it started from. */
export interface BranchInfo {
  branch: string; context_id: string; version: number; hash: string; from_context_id: string; from_version: number;
}
/** Every branch of a context, and the `current` one that your calls use by default. */
export interface Branches {
  context_id: string; current: string; branches: BranchInfo[];
}
/** The budget that was deleted, with what was spent of it. */
export interface BudgetDeleted {
  success: true; subject: string; period: "day" | "month";
}
/**
 * A budget and what was spent of it since `starts_at`. Money is in US dollars.
 *
 * `state`: within, near (the soft limit `warn_at` is reached) or reached. What was spent is null unless the
 * budget is yours or that of an agent below you, or you are an admin; it is also null if agents with a higher
 * clearance than yours count for it. `unpriced_calls`: calls of models without a known price, which cost nothing
 * here. `tree_share`, `agent_share`: the part of the limits that one tree, and one agent, may spend; `shares`:
 * those that spent the most, or yours.
 */
export interface BudgetInfo {
  subject: string; period: "day" | "month"; tokens: number | null; cost: number | null;
  at_limit: "downgrade" | "refuse" | "warn"; warn_at: number; state: "near" | "reached" | "within";
  used_tokens: number | null; used_cost: number | null; calls: number | null; unpriced_calls: number | null;
  starts_at: string; resets_at: string; set_by: string; set_at: string; tree_share: number | null;
  agent_share: number | null; shares: ShareInfo[];
}
/** Budgets by subject and period; `next_cursor` while there are more. */
export interface BudgetList {
  budgets: BudgetInfo[]; next_cursor?: string | null;
}
/** A budget that a call counted for, or the share of a tree or an agent in it: tree:ID or agent:ID. */
export interface BudgetName {
  subject: string; period: "day" | "month"; share?: string;
}
/** Selects a passage by byte offsets; `end` is exclusive. */
export interface ByteRange {
  type: "byte_range"; start: number; end: number;
}
/** Your tenant's entries and lookups in the caches of this process, all caches together. */
export interface CacheStats {
  /** Entries in all caches. */ cached_queries: number;
  /** Entries in first-level caches. */ l1_cache_size: number;
  /** Entries in second-level caches. */ l2_cache_size: number;
  /** Hits divided by lookups, 0 to 1; null before the first. */ cache_hit_ratio: number | null;
  /** Lookups without a valid entry. */ cache_misses: number;
  /** Entries dropped to make room. */ evictions: number;
}
/**
 * Queries that both models answered, and the means of what was compared.
 *
 * `overlap`: share of the first ten results that both found, or of fewer if one model found fewer.
 * `rank_correlation`: Kendall's tau of these. `results_*`: number of results, `ms_*`: latency.
 * `failures`: queries that the new model could not answer, so that the old one did.
 */
export interface CanaryStep {
  share: number; started_at: string; queries: number; failures: number; overlap: number; rank_correlation: number;
  results_before: number; results_after: number; confidence_before: number; confidence_after: number; ms_before: number;
  ms_after: number;
}
/**
 * Something that may go into a prompt. `ref` is its item id, or the id of a passage; unique in a plan.
 *
 * `version` changes with the content: a candidate that was sent in another version is sent again. Of a passage,
 * `probability` is that of being evidence for the task, `doubtful` if its collection probably holds none.
 */
export interface Candidate {
  ref: string; kind: "board" | "event" | "layer" | "missing" | "passage" | "pin" | "summary" | "task" | "tool";
  tokens: number; version?: string; score?: number | null; probability?: number | null; doubtful?: boolean;
}
/** A source that may have the missing information. */
export interface CandidateSource {
  kind: string; hint?: string; uri?: string; ref?: string | Link; metadata?: Record<string, unknown>;
}
/** The part that an event plays in a conversation; each has its share of the window. */
export type Category = "CONTEXT" | "DIALOG" | "ERROR" | "INTERNAL" | "SYSTEM" | "SYSTEM_OUTPUT";
/** Budget of a category, and the tokens and number of its events. Room that others leave is lent to it. */
export interface CategoryUse {
  category: Category; budget: number; tokens: number; events: number;
}
/** Change of one key by a commit. */
export interface ChangeInfo {
  key: string; act: string; key_version: number; size_tokens?: number; size?: number;
}
/** An entry that was changed, and how. */
export interface ChangedEntry {
  memory_type: string; key: string; act: string; version: number; workflow_id?: string | null;
}
/** Calls of Weftline's own language model for your tenant, in this process. */
export interface ChatModelMetrics {
  /** Each with all its attempts. */ calls: number;
  /** Calls without a usable answer. */ errors: number;
  /** Time of all calls together. */ seconds: number;
  input_tokens: number;
  /** The input tokens that were read from a cache. */ cached_tokens: number;
  output_tokens: number;
}
/** A label and the windows that have it. */
export interface Checkpoint {
  label: string; created_by: string; created_at: string; automatic: boolean; windows: WindowVersion[];
}
/** The branches that start from the checkpoint. */
export interface CheckpointBranched {
  session_id: string; label: string; branch: string; windows: WindowVersion[];
}
/** The windows that have the content of the checkpoint again. */
export interface CheckpointRestored {
  session_id: string; label: string; windows: RestoredWindow[];
}
/** Checkpoints, newest first. */
export interface Checkpoints {
  session_id: string; checkpoints: Checkpoint[];
}
/** Chunking of texts. The overlap is at most half a chunk. */
export interface ChunkingOptions {
  /** Maximum tokens of a chunk. Default: 512. */ chunk_tokens?: number;
  /** Tokens repeated from the previous chunk; below chunk_tokens. Default: 64. */ overlap_tokens?: number;
}
/**
 * Source of a numbered passage. `ref` is a handle that context_records, show or resolve, opens.
 *
 * `trust` is shown where it is not the usual one of the source: a suspicious passage may contain an attack.
 * With `explain`: the label and score of the passage, and `source_refs` to each of its parts.
 */
export interface Citation {
  number: number; ref: string; trust?: Trust; label?: string; score?: number; source_refs?: ContextSourceRef[];
}
/** A sub-agent's window that is smaller than its parent's, or an agent that makes the window it shares smaller. */
export interface Clamp {
  agent_id: string; limit: number; parent_id: string; parent_limit: number;
}
/**
 * An event as a CloudEvents 1.0 object in structured mode.
 *
 * Its `data` is a context_event if Agent Context has a class for it, otherwise the data of the logged event.
 */
export interface CloudEvent {
  id: string; source: string; type: string; time: string; data: unknown; subject?: string; specversion?: string;
  datacontenttype?: string; dataschema?: string; sequence?: string; sessionid?: string; turnid?: string; taskid?: string;
  toolcallid?: string; actor?: string; agentid?: string; traceparent?: string;
}
/** Attributes of a CloudEvent. */
export interface CloudEventsMapping {
  native: "cloudevents"; id?: string; source?: string; type?: string; subject?: string; time?: string;
  datacontenttype?: string;
}
/**
 * One commit. Changes you may not read are left out; if you may read none, so are reason and step.
 *
 * `hash` is empty for a commit without salt, of an earlier version of Weftline, in a context whose entries have
 * ACLs.
 */
export interface CommitInfo {
  version: number; hash: string; author: string; agent_id: string; at: string; reason: string; changes: ChangeInfo[];
  more_changes?: number; step?: string | null; merged?: MergedFrom | null;
}
/** One commit with its parent and its snapshots; `next_cursor` is set while there are more changes. */
export interface CommitShown {
  context_id: string; commit: CommitInfo; parent?: string | null; snapshots?: string[]; next_cursor?: string | null;
}
/** The compactions that were dropped: the one in effect, and the one that was in progress. */
export interface CompactionDropped {
  dropped: string[];
}
/** Original events in order, at most 64 KiB; `next_offset` while there are more. `unknown`: ids of nothing. */
export interface CompactionExpanded {
  events: OriginalEvent[]; next_offset?: number | null; unknown?: string[];
}
/**
 * A compaction. `used`: the strategy that was used; `version`: the hash of the result.
 *
 * `facts`: statements in the covered events, and the names and numbers that their summary lacks; `carried_facts`
 * of them are listed next to the summaries, which do not contain them. `degraded`: what could not be done as
 * configured.
 */
export interface CompactionInfo {
  compaction_id: string; state: CompactionState; session_id: string; agent_id: string; requested_by: string;
  trigger: "request" | "threshold"; strategy: "auto" | "hierarchical" | "key_facts" | "sliding_window" | "task_scoped";
  created_at: string; used?: "hierarchical" | "key_facts" | "sliding_window" | "task_scoped" | "truncation" | null;
  reason?: string; version?: string | null; tokens_before?: number; tokens_after?: number; events_covered?: number;
  summaries?: number; facts?: number; carried_facts?: number; loss_notes?: number; degraded?: string[];
  model?: string | null; model_usage?: ModelUsage | null; approval_id?: string | null; finished_at?: string | null;
}
/** Compactions, newest first; `next_cursor` while there are more. */
export interface CompactionList {
  compactions: CompactionInfo[]; next_cursor?: string | null;
}
/** When and how windows are compacted; what is not set here is set for a parent, a team or the tenant. */
export interface CompactionSettings {
  /** How windows are compacted; sliding_window by default. */ strategy?: "auto" | "hierarchical" | "key_facts" | "sliding_window" | "task_scoped" | null;
  /** Part of the limit that starts a compaction; 0.8 by default. */ threshold?: number | null;
  /** Newest messages that stay in full; 20 by default. */ keep_recent?: number | null;
  /** Part of their tokens that compacted events may take; 0.4 by default. */ target?: number | null;
  /** Model that writes the summaries: the server's, or none. */ model?: string | null;
  /** A human approves each compaction before it is used. */ review?: boolean | null;
  /** Compact at the threshold; true by default. */ auto?: boolean | null;
}
/**
 * A compaction: each summary next to the events it stands for, what it leaves out, and their key facts.
 *
 * `expired`: only the figures are kept of a compaction this old. `next_offset` while there are more summaries;
 * `shortened`, events with a shorter content, are on the last page.
 */
export interface CompactionShown {
  compaction: CompactionInfo; summaries: SummaryView[]; shortened?: ShortenedView[]; shortened_omitted?: number;
  next_offset?: number | null; expired?: boolean;
}
/**
 * `held` waits for a human; `superseded` was applied, and a later one is in its place.
 *
 * `dropped`: somebody returned to the original events.
 */
export type CompactionState = "applied" | "dropped" | "failed" | "held" | "queued" | "rejected" | "running" | "skipped" | "superseded";
/**
 * What the compaction of the window saved in a prompt.
 *
 * `events` are the events that `summaries` and shorter contents stand for, `quoted` those of them of which
 * passages are in the prompt as well, because the task asks for them.
 */
export interface CompactionUse {
  compaction_id: string; version: string; summaries: number; events: number; quoted: number; original_tokens: number;
  tokens: number;
}
/** Differences between two states of the board. */
export interface Comparison {
  added: PastEntry[]; removed: PastEntry[]; modified: KeyDifference[]; unchanged: string[];
}
/**
 * How sure retrieval was. See the fields of the same names in the answer of a search.
 *
 * `widened`: the prompt has doubtful passages, which may have `doubt_tokens`. `fallback`: nothing was evidence,
 * so the newest turns of the conversation have the room. `pending_by_words`: something of the agent was found by its
 * words only, not yet by its meaning.
 */
export interface Confidence {
  confidence: number | null; widened: boolean; fallback: string | null; pending_documents: number; pending_events: number;
  doubt_tokens: number; pending_by_words: boolean;
}
/** A key that both sides changed: in the merge base, in ours and in theirs. Null: it does not exist there. */
export interface ConflictInfo {
  key: string; base: Side | null; ours: Side | null; theirs: Side | null;
}
/** Decision about one key: one of the three sides, or a new value. */
export interface ConflictResolution {
  /** Side to take, or value for a new one. */ take: "base" | "ours" | "theirs" | "value";
  /** New value, with take = value. */ value?: unknown;
}
/** Database connections and queries of this process since it started. */
export interface ConnectionStats {
  /** Opened since the start. */ total_connections: number;
  /** In use now. */ active_connections: number;
  /** The most in use at once. */ peak_connections: number;
  /** Statements run; begin and commit are not counted. */ total_queries: number;
  /** Mean duration of a transaction in milliseconds. */ avg_query_time: number | null;
  /** Transactions that took over 50 ms. */ slow_queries: number;
  /** Transactions that could not reach the database. */ connection_errors: number;
}
/** What a pull changed. `has_more` if the list is truncated. */
export interface ContextChanges {
  added: EntryDifference[]; removed: EntryDifference[]; modified: EntryDifference[]; has_more: boolean;
}
/**
 * The compaction. `version`: the hash of the new view; `strategy`: the one used, for the `reason` given.
 *
 * `state` queued or running: not finished yet; held: a human reviews it first; skipped: nothing to gain. `facts`:
 * statements in the covered events, and the names and numbers that their summary lacks; `carried_facts` of them are
 * listed next to the summaries.
 */
export interface ContextCompacted {
  compaction_id: string; state: CompactionState; strategy: string; reason?: string; version?: string | null;
  tokens_before?: number; tokens_after?: number; facts?: number; carried_facts?: number; loss_notes?: number;
  degraded?: string[]; approval_id?: string | null;
}
/** The result of a copy. `snapshot_before` labels the version that was replaced. */
export interface ContextCopied {
  success: true; agent_id: string; from_agent_id: string; from_version: number; previous_version: number; version: number;
  written: number; removed: number; snapshot_before: string | null; copied_at: string;
}
/**
 * One entry of an agent's memory. `hash` is the SHA-256 of the value.
 *
 * `truncated` if the value or its metadata is too large for this answer: read the entry by its key.
 * `pruned` if history no longer has the value.
 */
export interface ContextEntry {
  key: string; memory_type: string; version: number; size: number; written_by: string; written_at: string; hash?: string;
  workflow_id?: string | null; media_type?: string | null; value?: unknown; base64?: string | null;
  metadata?: Record<string, unknown>; truncated?: boolean; pruned?: boolean; trust?: TrustInfo | null;
}
/** An export. `digest` covers all of it; `masked` and `omitted` count what the policy changed and left out. */
export interface ContextExported {
  bundle_id: string; policy: string; digest: string; records: number; bytes: number; masked: number; omitted: number;
  bundle: string | null;
}
/**
 * The number of imported versions of keys and window events, messages, events, snapshots, windows and records.
 *
 * `skipped` records existed already, identical; `unchanged`: the same bundle was imported before. `suspicious`
 * entries look like instructions to agents: they are labelled so, events and records among them only admins can read.
 */
export interface ContextImported {
  bundle_id: string; scope: string; digest: string; session_id: string | null; versions: number; messages: number;
  events: number; snapshots: number; windows: number; records: number; skipped: number; suspicious: number;
  unchanged: boolean; dry_run: boolean;
}
/**
 * The session's new snapshot, which replaces the previous one. `reason` is critical after a critical update.
 *
 * `from_version` is the version that the session had before, from a pull or its first prompt. `shared` is the
 * memory of your teams and users.
 */
export interface ContextPulled {
  success: true; agent_id: string; session_id: string; context_id: string; from_version: number | null;
  to_version: number; snapshot: string; message: string; reason: "critical" | "request"; changes: ContextChanges;
  context: PulledContext; layers: LayerVersion[]; shared: SharedMemoryVersion[];
}
/**
 * The new version of the context; the same version if nothing changed.
 *
 * `snapshot_before` is the label of an automatic snapshot, taken before a push with many changes.
 */
export interface ContextPushed {
  success: true; agent_id: string; context_id: string; previous_version: number; version: number; snapshot: string;
  changed: ChangedEntry[]; unchanged: number; snapshot_before: string | null; pushed_at: string;
}
/** The current context; with a session, your snapshot there, as its prompts have it. */
export interface ContextRead {
  success: true; agent_id: string; session_id: string | null; context_id: string; version: number; snapshot: string;
  pulled_at: string | null; definition: AgentDefinition; entries: ContextEntry[]; count: number; has_more: boolean;
  next_cursor: string | null;
}
/**
 * Passages numbered [1], [2] and so on, most relevant first, each with its surroundings.
 *
 * `tokens` are those of the whole answer as JSON. `complete`: every result fitted into the budget. `withheld`:
 * passages that the tenant's policy keeps out of prompts because they look like an attack. `confidence`:
 * likelihood that the passages contain the answer, from 0 to 1; `unsure` if it is low. `widened`: the last
 * passages are doubtful. Nothing is returned if nothing is evidence. `lexical_only`: why only words were
 * matched, not meaning. `resolved`: what phrases such as "that file" were taken to mean. `assembly_id`: the
 * record of the text, if recorded.
 */
export interface ContextResponse {
  pending?: PendingItems | null; searched?: number; model?: string; took_ms?: number; context: string; tokens: number;
  citations: Citation[]; complete?: boolean; withheld?: number; confidence?: number | null; unsure?: boolean;
  widened?: boolean; lexical_only?: string; resolved?: ResolvedReference[]; selection_id?: string; assembly_id?: string;
}
/** A source or a passage of it, with the digest of its content. */
export interface ContextSourceRef {
  schema_version: "0.1.0"; policy_refs?: (string | Link)[]; evidence_refs?: (string | Link)[];
  artifact_refs?: (string | Link)[]; telemetry_refs?: (string | Link)[];
  external_mappings?: (McpMapping | A2aMapping | OpenTelemetryMapping | ModelApiMapping | WebAnnotationMapping | ProvMapping | CloudEventsMapping | JsonSchemaMapping | OtherMapping)[];
  metadata?: Record<string, unknown>; source_id: string; uri: string; source_kind: string;
  selector?: (TextQuote | TextPosition | ByteRange | LineRange | JsonPointer | Css | XPath | PageRegion | MediaTimeRange | CustomSelector)[] | TextQuote | TextPosition | ByteRange | LineRange | JsonPointer | Css | XPath | PageRegion | MediaTimeRange | CustomSelector;
  digest?: string; authority?: string; provenance_refs?: (string | Link)[]; license?: string; retrieved_at?: string;
  modified_at?: string;
}
/**
 * State at one version, as far as you may read it, by key; `next_cursor` is set while there is more.
 *
 * For context:AGENT, these are the entries of its parts, as PART/KEY.
 */
export interface ContextState {
  context_id: string; version: number; hash: string; entries: StoredEntry[]; next_cursor: string | null;
}
/**
 * The current version of the context, the one a session pulled, and the latest it has seen (pulled or pushed).
 *
 * `critical_update`: edits of your definition or layers that you should get with `context.pull` at once.
 */
export interface ContextStatus {
  agent_id: string; context_id: string; branch: string; version: number; snapshot: string; used_bytes: number;
  limit_bytes: number; pulled_version: number | null; known_version: number | null; pulled_at: string | null;
  critical_update: CriticalUpdate | null;
}
/** Keys that belong together. */
export interface ConventionGroup {
  /** What the keys have in common. */ title: string;
  /** The keys. */ keys: KeyConvention[];
}
/** The conventions there are. */
export interface ConventionNames {
  names: string[];
}
/** The conventions are in force for every session that names them. */
export interface ConventionsDefined {
  success: true; name: string; key_count: number;
}
/**
 * How tokens were counted: exactly, or by an estimate times a factor times a safety margin.
 *
 * `learned`: the factor comes from the usage that providers reported. `raw_tokens`: the estimate without both.
 */
export interface CountingMethod {
  exact: boolean; factor: number; margin: number; learned: boolean; raw_tokens: number;
}
/** A critical version that is newer than the pinned one: of which line, by whom and when. */
export interface CriticalChange {
  context_id: string; pinned_version: number; version: number; author: string; marked_at: string;
}
/** Critical changes that the session does not have yet: pull them with `context.pull`. */
export interface CriticalUpdate {
  changes: CriticalChange[];
}
/** Selects the first element that matches a CSS selector. */
export interface Css {
  type: "css"; selector: string;
}
/** A selector that Weftline does not interpret. */
export interface CustomSelector {
  type: "custom"; name: string; value: unknown;
}
/** The database as this process sees it. What other tenants do would show in it, so most is for the operator. */
export interface DatabasePerformance {
  /** Null outside the operator's tenant. */ connection_stats: ConnectionStats | null;
  /** Null outside the operator's tenant. */ pool_stats: PoolStats | null;
  cache_stats: CacheStats;
}
/** A version of an agent's definition. Version 0: the agent has no definition. */
export interface DefinitionRead {
  role: string | null; system_prompt: string | null; guardrails: Guardrail[]; config: Record<string, unknown>;
  agent_id: string; context_id: string; version: number; hash: string;
}
/** A pending delivery or a dead letter. `delivery_id` is the webhook-id header that the receiver sees. */
export interface DeliveryInfo {
  seq: number; delivery_id: string; state: string; attempts: number; next_attempt_at: string | null;
  last_status: number | null; last_error: string | null;
}
/** Deliveries in log order; completed ones are only counted. */
export interface DeliveryList {
  delivered: number; pending: number; dead: number; deliveries: DeliveryInfo[]; has_more: boolean;
}
/**
 * A derived item.
 *
 * `how`: declared (it names `via`), copy (it has the content of `via`) or possible (its author wrote it after
 * the prompt `via`, before the next one).
 */
export interface DerivedItem {
  item: string; how: "copy" | "declared" | "possible" | "source"; via: string; steps: number; at: string | null;
  version?: string;
}
/** Entries that differ between two versions. */
export interface Differences {
  from_context_id: string; from_version: number; to_context_id: string; to_version: number; added: KeyDiff[];
  removed: KeyDiff[]; modified: KeyDiff[];
}
/** The deleted document. */
export interface DocumentDeleted {
  domain: string; document_id: string;
}
/** The discarded version; `indexed_version` is the earlier one that searches still find, 0 if there is none. */
export interface DocumentDiscarded {
  domain: string; document_id: string; version: number; indexed_version: number;
}
/**
 * A document. Searches find its indexed_version (0: none yet), which has `chunks` chunks.
 *
 * While a later version is being indexed, chunks_done of chunks_total are written. `trust` is given for a document
 * that is not trusted as documents are by default, `quarantine` for humans who may write to the domain.
 */
export interface DocumentInfo {
  domain: string; document_id: string; state: "failed" | "indexed" | "pending" | "quarantined"; version: number;
  indexed_version: number; media_type: string; title: string; metadata: Record<string, string | number | boolean | null>;
  pinned: boolean; importance: number | null; timestamp: string; bytes: number; digest: string; chunks: number;
  chunks_done: number; chunks_total: number | null; error: string | null; added_by: string; created_at: string;
  updated_at: string; indexed_at: string | null; trust?: TrustInfo; quarantine?: QuarantineInfo;
}
/** Documents, by id. */
export interface DocumentList {
  documents: DocumentInfo[]; has_more: boolean; next_cursor: string | null;
}
/** An added document. Searches find it once it is indexed. `unchanged`: the same document was already there. */
export interface DocumentPut {
  domain: string; document_id: string; version: number; state: "failed" | "indexed" | "pending" | "quarantined";
  unchanged: boolean; bytes: number; digest: string;
}
/**
 * A range of a document's text. `characters` is its total length; `next_start` is set if there is more.
 *
 * `state` is that of this version: searches find it if it is `indexed`.
 */
export interface DocumentText {
  domain: string; document_id: string; version: number; state: "failed" | "indexed" | "pending" | "quarantined";
  title: string; media_type: string; text: string; start: number; end: number; characters: number;
  next_start: number | null;
}
/** The added documents, in the order of the request. */
export interface DocumentsPut {
  documents: DocumentPut[];
}
/** The deleted domain and the number of its documents. */
export interface DomainDeleted {
  domain: string; documents: number;
}
/**
 * A domain with its copy of the template, and what the example questions of it found last.
 *
 * Later versions of the template do not change the copy.
 */
export interface DomainDetails {
  domain: string; description: string; clearance: number; agents: string[]; writers: string[]; chunking: ChunkingOptions;
  importance: number; created_by: string; created_at: string; updated_at: string; documents: number; bytes: number;
  chunks: number; pending: number; failed: number; quarantined: number; reindexing: boolean; to_reindex: number;
  template: string | null; template_version: number | null; template_copy?: TemplateInfo; evaluation?: DomainEvaluation;
}
/** How many example questions found their evidence, of the version of the template that the domain has. */
export interface DomainEvaluation {
  template: string; version: number; evaluated_at: string; documents: number; found: number; questions: QuestionResult[];
}
/**
 * A domain with the number of its documents and chunks; pending, failed and quarantined count documents.
 *
 * During a reindex, `to_reindex` documents are left. `template`: the name of the one it was created from.
 */
export interface DomainInfo {
  domain: string; description: string; clearance: number; agents: string[]; writers: string[]; chunking: ChunkingOptions;
  importance: number; created_by: string; created_at: string; updated_at: string; documents: number; bytes: number;
  chunks: number; pending: number; failed: number; quarantined: number; reindexing: boolean; to_reindex: number;
  template: string | null; template_version: number | null;
}
/** Domains, by name, and the tenant's plan. */
export interface DomainList {
  domains: DomainInfo[]; plan: string;
}
/** A domain, and how many of its documents are left to reindex. */
export interface DomainReindexStatus {
  domain: string; to_reindex: number;
}
/**
 * What a domain is created with. `pinned` are patterns of document ids, such as glossary*.
 *
 * Documents are deleted `retention_days` after their timestamp; without it they stay.
 */
export interface DomainTemplate {
  /** Name of the template. */ name: string;
  /** Version of the template. Default: 1. */ version?: number;
  /** What the domain is about. Default: "". */ description?: string;
  chunking?: ChunkingOptions;
  /** Metadata fields of documents. */ metadata?: MetadataField[];
  /** Patterns of ids of documents to pin. */ pinned?: string[];
  /** Days after which documents are deleted; by default never. */ retention_days?: number | null;
  /** Questions to evaluate the domain with. */ questions?: ExampleQuestion[];
}
/**
 * How much of a prompt was used. `score` is useful over sent tokens, both without the overhead.
 *
 * `overhead_tokens`: what every prompt needs, used or not: layers, system messages and the task.
 * `capacity_tokens`: what the window can hold, and `window_fill` how much of that was sent. Without an answer
 * (`basis` retrieval_scores or usual_share) the useful tokens are an estimate, and there are no `items`;
 * `ranked_tokens` are those whose score of retrieval it is from.
 */
export interface Efficiency {
  basis: "answer" | "retrieval_scores" | "usual_share"; score: number | null; window_fill: number; sent_tokens: number;
  useful_tokens: number; overhead_tokens: number; capacity_tokens: number; ranked_tokens?: number; items?: ItemUse[];
}
/** A normalised vector for each text, in order. `cached`: how many of them you had requested before. */
export interface EmbeddedTexts {
  success: true; model: string; dimensions: number; vectors: number[][]; cached: number;
}
/** An embedding model and its role: used by searches, being migrated to, kept for a rollback, or usable. */
export interface EmbeddingModelInfo {
  model: string; dimensions: number; most_tokens: number; role: "building" | "kept" | "serving" | "usable";
}
/** An entity, the number of passages that mention it, and the time of the last. */
export interface EntityInfo {
  type: "agent" | "date" | "email" | "file" | "identifier" | "person" | "project" | "url"; value: string; count: number;
  last_at: string;
}
/** Entities, the most frequent first. `complete`: nothing was left out, neither entities nor older passages. */
export interface EntityListing {
  entities: EntityInfo[]; complete: boolean;
}
/** The entries that exist, in the requested order, and the missing keys. */
export interface EntriesRead {
  entries: EntryRead[]; missing: string[];
}
/** The entry is deleted; its history stays. */
export interface EntryDeleted {
  deleted: string; previous_version: number;
}
/** An entry in which two snapshots differ. `memory_type` is definition for the agent's definition. */
export interface EntryDifference {
  memory_type: string; key: string; from_version?: number | null; to_version?: number | null; workflow_id?: string | null;
}
/** One entry. */
export interface EntryRead {
  key: string;
  /** Text, or the JSON that was written. */ value: unknown;
  written_by: string; written_at: string; version: number; expires_at?: string | null; trust?: TrustInfo | null;
}
/** The entry as written. */
export interface EntryWritten {
  key: string; version: number; written_by: string; written_at: string; expires_at?: string | null;
  warning?: string | null; trust?: TrustInfo | null;
}
/** An error as every interface reports it. */
export interface ErrorBody {
  success: false; error: string; code: string; severity: "critical" | "error" | "warning"; recoverable: boolean;
  suggestions: string[]; context: Record<string, unknown>; related_resources: string[]; timestamp: string;
}
/**
 * How many of the example questions found their evidence in the first ten results; `score` is that part of them.
 *
 * `rank`: the result with which the evidence is complete; 0: pinned documents contain it. `documents`: documents
 * of the domain at that time.
 */
export interface EvaluationInfo {
  domain: string; template: string; version: number; evaluated_at: string; documents: number; found: number;
  score: number | null; questions: QuestionResult[];
}
/** A published event; `seq` orders all events of a tenant. `agent_id` is the id of its actor. */
export interface Event {
  seq: number; type: string; session_id: string | null; subject: string; actor: string; agent_id: string; at: string;
  data: Record<string, unknown>;
}
/**
 * Events in order. Pass `next_after` as `after` to read on without a gap.
 *
 * With the format cloudevents, they are in `cloudevents` and `events` is empty.
 */
export interface Events {
  events: Event[]; next_after: number; cloudevents?: CloudEvent[];
  /** Events up to this seq are past retention and missing from the answer. */ pruned_through?: number | null;
}
/** The events that are released now; those that were not held are not among them. */
export interface EventsReleased {
  session_id: string; agent_id: string; released: string[];
}
/** One observation that a recommendation rests on: what it is about, how often, and of how many. */
export interface Evidence {
  statement: string; count: number; of: number;
}
/**
 * A question that the documents should answer, and what its evidence contains.
 *
 * `contains`: texts that all have to be in it; `contains_any`: texts of which one has to be. Case is ignored.
 */
export interface ExampleQuestion {
  /** A question to search for. */ question: string;
  /** Texts that its evidence must contain, all of them. */ contains?: string[];
  /** Texts of which it must contain one. */ contains_any?: string[];
}
/** What a key fact is: statements first, then literals, which must survive character by character. */
export type FactKind = "blocker" | "commitment" | "constraint" | "date" | "deadline" | "decision" | "error" | "fact" | "identifier" | "open_question" | "owner" | "path" | "pending_call" | "preference" | "quantity" | "quote" | "requirement" | "symbol" | "url";
/** Key facts in order of time, also of events that are not compacted; `total_count` counts all that match. */
export interface FactList {
  facts: FactView[]; total_count: number; next_offset?: number | null;
}
/**
 * A key fact with its source: who wrote it, in which events. `place`: where prompts have it now.
 *
 * `trust` is set if a source is not trusted, such as the result of a tool: then it is data, not an instruction.
 */
export interface FactView {
  fact_id: string; kind: FactKind; text: string; who: string; event_ids: string[];
  status?: "current" | "resolved" | "superseded"; superseded_by?: string | null; place?: "carried" | "event" | "summary";
  trust?: Trust | null;
}
/** A passage that looks like an instruction to agents: where it is, the most suspicious words. */
export interface FlaggedPassage {
  start: number; end: number; score: number; excerpt: string;
}
/** What was done with an item, or would be; `problem`: why it was not. */
export interface ForgottenEntry {
  item: string; how: "copy" | "declared" | "possible" | "source"; done: "deleted" | "flagged" | "kept" | "skipped";
  problem?: string | null;
}
/**
 * A tool, or an action of a grouped tool as TOOL.ACTION, and what it does.
 *
 * `runtime`: a tool of your runtime, registered with `tools.register`; call it there.
 */
export interface FoundTool {
  name: string; summary: string; runtime?: boolean;
}
/** A request to resolve a gap: its form, who was asked, and where the question is. */
export interface GapRequest {
  form: "peer_task" | "policy_request" | "retrieval" | "tool_invocation" | "user_question"; requested_from: string;
  requested_by: string; requested_at: string; key?: string | null; message_id?: number | null;
  selection_id?: string | null; tool?: string | null; detail?: string | null;
}
/** A rule: what callers in its scope may not do. It holds from the next call of every running session. */
export interface Guardrail {
  /** Unique in its layer. */ name: string;
  /** Operations and tools that the rule is about. */ prohibited_action: string[];
  /** Callers it holds for, as in ACLs; by default all of its layer. Default: ["*"]. */ scope?: string[];
  condition?: string | null;
  /** block refuses the call, redact masks values in it, warn lets it pass with a warning, terminate ends the agent's session, ask holds the call for approval. Default: "block". */ violation_response?: "ask" | "block" | "redact" | "terminate" | "warn";
  /** What an error of the condition means: closed: prohibited, open: allowed. Default: "closed". */ on_error?: "closed" | "open";
  /** Only count what it would prohibit. Default: false. */ dry_run?: boolean;
  /** Shown to the caller. */ message?: string | null;
  /** What redact masks. Default: ["secrets", "pii"]. */ mask?: string[];
  /** Who decides on ask: a human of the tenant, or also the user of the MCP client. Default: "human". */ approver?: "client" | "human";
}
/** Rules by level; `next_cursor` is set while there are more layers. */
export interface GuardrailList {
  guardrails: ListedGuardrail[]; next_cursor: string | null;
}
/** The call is allowed. Use `arguments` or `answer` in place of yours if they are given. */
export interface GuardrailsChecked {
  allowed: true; warnings: string[]; arguments?: Record<string, unknown>; answer: unknown;
}
/**
 * The decision on the call and the rule that makes it, and the result of each rule about the action.
 *
 * `arguments` or `answer`: as rules with the response redact would leave them.
 */
export interface GuardrailsTested {
  decision: "allow" | "ask" | "block" | "redact" | "terminate" | "warn"; guardrail: string | null; rules: RuleResult[];
  labels?: string[]; arguments?: Record<string, unknown>; answer?: unknown;
}
/** Text for an agent's system prompt. */
export interface Guidance {
  conventions: string; text: string;
}
/** What was removed. Unfinished runs continue in the background; `started` is false if one is already running. */
export interface HistoryPruned {
  started: boolean; finished: boolean; versions: number; bytes: number;
}
/** One hour, over all server processes: your tenant's calls; for the operator, cache and database of the servers. */
export interface HourMetrics {
  start: string; calls: number;
  /** Calls that failed. */ errors: number;
  /** Mean duration of a call in milliseconds. */ avg_response_time: number | null;
  /** Messages that were added. */ messages: number;
  searches: number;
  /** Hits divided by lookups, of the servers. Null outside the operator's tenant. */ cache_hit_ratio: number | null;
  /** Mean duration of a transaction in milliseconds, of the servers. Null outside the operator's tenant. */ avg_query_time: number | null;
}
/**
 * A message addressed to you; fields with the default of add_message are omitted.
 *
 * `missed`: earlier ones of this sender that left the full inbox.
 */
export interface InboxMessage {
  handle: string; session_id: string; message_id: number; sender: string; content: string; timestamp: string;
  visibility: string; parent_message_id?: number | null; message_type?: string; category?: string;
  metadata?: Record<string, unknown>; missed?: number;
}
/**
 * Unread messages, oldest first; `unread` counts all that match.
 *
 * `senders`: unread messages by sender, if not all are shown. `acknowledged`: how many left the inbox.
 */
export interface InboxPage {
  messages: InboxMessage[]; unread: number; senders?: Record<string, number>; acknowledged?: number;
}
/**
 * The events, and how full the window is.
 *
 * `trust` of an event: why it is labelled; `held`: no prompt of others contains it until a human releases it, for
 * which `approval_id` waits.
 */
export interface Ingested {
  success: true; session_id: string; agent_id: string; events: IngestedEvent[]; tokens: number; limit: number;
  approval_id?: string;
}
/**
 * An event of the window; `added` is false if it was there already.
 *
 * `shown_as` data: you wrote it as your own system text, which is not yours to write; prompts only quote it.
 */
export interface IngestedEvent {
  event_id: string; number: number; category: Category; tokens: number; added: boolean; shown_as?: "data";
  trust?: TrustInfo;
}
/**
 * What happens when a detector flags a text that is written, by its source.
 *
 * Text of humans and agents is quarantined or blocked only at the strict threshold; below it, it is annotated.
 */
export interface InjectionActions {
  /** Text of humans. Default: "annotate". */ human?: "annotate" | "block" | "quarantine";
  /** Text of agents. Default: "quarantine". */ agent?: "annotate" | "block" | "quarantine";
  /** Results of tools. Default: "quarantine". */ tool?: "annotate" | "block" | "quarantine";
  /** Documents. Default: "quarantine". */ document?: "annotate" | "block" | "quarantine";
  /** Imported bundles. Default: "quarantine". */ import?: "annotate" | "block" | "quarantine";
}
/** One entry with its value and read count. */
export interface InspectedEntry {
  info: KeyInfo;
  /** Text, or the JSON that was written. */ value: unknown;
  reads: number;
}
/** One entry with its value and metadata. */
export interface InspectedMemory {
  scope: "global" | "session"; created_at: number; updated_at: string; expires_at: number | null; trust?: TrustInfo;
  value: unknown; metadata: Record<string, unknown>; key: string; session_id: string | null; value_size: number;
  version: number;
}
/** A session with its board, snapshots and integrity check. */
export interface Inspection {
  session: SessionInfo; entries: InspectedEntry[]; snapshots: SnapshotInfo[]; history_intact: boolean;
  history_problem?: string | null;
}
/**
 * What was done, or in a dry run would be done.
 *
 * `complete` is false if a limit ended the search: call again. `hidden` items, which you may not read, are
 * included in what is done. `versions` and `prompts`: old versions and blocks of prompts whose text was removed.
 */
export interface ItemForgotten {
  item: string; dry_run: boolean; items: ForgottenEntry[]; hidden: number; deleted: number; flagged: number;
  skipped: number; versions: number; prompts: number; complete: boolean;
}
/**
 * The redaction of an item.
 *
 * `salt`: of encrypted_ref, in hexadecimal. Readers see the SHA-256 over it and the digest of the content, as text
 * such as sha256:9f86…; keep it to compare a copy.
 */
export interface ItemRedacted {
  item_id: string; redaction_state: string; redaction_method: string; redacted_by: string; redacted_at: string;
  salt?: string;
}
/** An item as it was written. `metadata`: of a message. `redaction_state` is that which readers see. */
export interface ItemRevealed {
  item_id: string; redaction_state: string; content: string; metadata?: unknown;
}
/**
 * What was derived from an item, of what you may read; `complete` is false if a limit was reached.
 *
 * `hidden`: further items that you may not read; only admins are told.
 */
export interface ItemTraced {
  item: string; derived: DerivedItem[]; prompts: number; complete: boolean; hidden: number | null;
}
/**
 * How the answer used an item of the prompt.
 *
 * `useful_tokens`: those of its parts that were used; an item that is not long has one part. `likelihood`: that it
 * was used, where texts had to be compared, of the likeliest part.
 */
export interface ItemUse {
  ref: string; kind: "board" | "conversation" | "layer" | "missing" | "pins" | "retrieved" | "summary" | "task" | "tool";
  tokens: number; use: "called" | "cited" | "paraphrased" | "quoted" | "repeated" | "required" | "unused";
  useful_tokens?: number; likelihood?: number | null;
}
/** Work of one background job, in this process. */
export interface JobFigures {
  name: string; running: number;
  /** Due, and waiting for its turn. */ ready: number;
  /** Failed the last time; it is tried again. */ failing: number;
}
/** Selects a value of a JSON document. */
export interface JsonPointer {
  type: "json_pointer"; pointer: string;
}
/** The JSON Schema an object conforms to. */
export interface JsonSchemaMapping {
  native: "json_schema"; $id?: string; $schema?: string; $ref?: string; type?: string | string[];
  properties?: Record<string, unknown>; required?: string[]; additionalProperties?: boolean | Record<string, unknown>;
}
/** A key everyone in the domain agrees on. */
export interface KeyConvention {
  /** The key. */ key: string;
  /** What it holds, in one line. */ purpose: string;
}
/**
 * A key that differs. `diff` is a unified diff of its value; `no_diff` is the reason if there is none.
 *
 * `omitted_lines` is the number of lines of the diff that did not fit.
 */
export interface KeyDiff {
  key: string; from_version?: number | null; to_version?: number | null; author?: string | null; diff?: string | null;
  no_diff?: string | null; omitted_lines?: number;
}
/** A key whose value differs; a pruned value is null. */
export interface KeyDifference {
  key: string; from_version: number; to_version: number;
  /** Text, or the JSON that was written. */ from_value: unknown;
  /** Text, or the JSON that was written. */ to_value: unknown;
}
/** One incarnation of a key, oldest version first; `ended` is deleted or expired if it is over. */
export interface KeyHistory {
  key: string; incarnation: number; incarnations: number; versions: PastVersion[]; ended?: string | null;
  ended_at?: string | null; ended_by?: string | null;
}
/** An entry; `value` only if the call asks for values. */
export interface KeyInfo {
  key: string; written_by: string; written_at: string; version: number; value_size_tokens: number;
  expires_at?: string | null; readable_by?: string[]; writable_by?: string[]; trust?: TrustInfo | null;
  /** Text, or the JSON that was written. */ value?: unknown;
}
/** Every key you may read; `metadata` is about the whole board, whatever the prefix. */
export interface Keys {
  keys: KeyInfo[]; metadata: BoardSize;
}
/** An entry to write: any JSON value, or bytes as base64. */
export interface Knowledge {
  /** 1 to 200 letters, digits and any of _.:/- , such as billing/limit. */ key: string;
  /** Any JSON value; or else base64. */ value?: unknown;
  /** Bytes instead of a value, as base64. */ base64?: string | null;
  /** The memory type. Default: "learned_knowledge". */ memory_type?: "conversation_context" | "learned_knowledge" | "team_preferences" | "work_artifacts";
  /** The workflow; only with the memory type conversation_context. */ workflow_id?: string | null;
  /** Media type of the bytes, such as image/png. Default: application/octet-stream. */ media_type?: string | null;
  /** Free-form JSON. */ metadata?: Record<string, unknown> | null;
  /** What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of them. */ derived_from?: string[];
}
/** The new version. Running sessions get its text with their next pull; the rest holds at once. */
export interface LayerDefined {
  success: true; layer: string; context_id: string; previous_version: number; version: number; hash: string;
  changed: string[]; critical: boolean;
}
/** One layer. `hash` is the SHA-256 of its text, `context_id` its line; the platform has none. */
export interface LayerInfo {
  level: number; layer: string; context_id: string | null; version: number; hash: string; text: string;
}
/** Layers by name; `next_cursor` is set while there are more. */
export interface LayerList {
  layers: LayerListed[]; next_cursor: string | null;
}
/** A layer that has been defined, without its text; `size` in bytes, 0 if it was removed. */
export interface LayerListed {
  layer: string; level: number; context_id: string; version: number; hash: string; size: number; defined_by: string;
  defined_at: string;
}
/** A version of a layer or definition that the session's prompts have from now on; 0: it is not defined. */
export interface LayerVersion {
  context_id: string; version: number;
}
/** The layers of an agent's prompts, lowest level first. `pinned`: the session keeps these until the next pull. */
export interface LayersShown {
  agent_id: string; session_id: string | null; pinned: boolean; layers: LayerInfo[];
  critical_update: CriticalUpdate | null;
}
/** The envelope's previous and new state. */
export interface LifecycleSet {
  success: true; record_id: string;
  previous: "archived" | "assembled" | "available" | "compacted" | "draft" | "expired" | "injected" | "redacted" | "selected";
  lifecycle: "archived" | "assembled" | "available" | "compacted" | "draft" | "expired" | "injected" | "redacted" | "selected";
  seq: number;
}
/** Selects whole lines, counted from 1; `end` is inclusive. */
export interface LineRange {
  type: "line_range"; start: number; end: number;
}
/** A reference with more than an id: kind, URI and digest. */
export interface Link {
  kind?: string; id?: string; uri?: string; digest?: string; metadata?: Record<string, unknown>;
}
/** A principal, without credentials. Admins see every field, others the first four. */
export interface ListedAgent {
  agent_id: string; agent_type: string; kind: string; participant: string; parent_id?: string | null; clearance?: number;
  permissions?: string[]; created_at?: string; disabled?: boolean; min_score?: number | null;
}
/**
 * A rule of a layer. `hits` since its first hit; `errors`: those because its condition failed.
 *
 * Condition, scope and counts are for those who may read layers.
 */
export interface ListedGuardrail {
  level: number; layer: string; name: string; prohibited_action: string[];
  violation_response: "ask" | "block" | "redact" | "terminate" | "warn"; message?: string | null; scope?: string[];
  condition?: string | null; on_error?: string; dry_run?: boolean; hits?: number; errors?: number; since?: string | null;
  last_hit_at?: string | null;
}
/** A record and the event it belongs to. `digest` is the digest of an item's content. */
export interface ListedRecord {
  seq: number; at: string; actor: string; type: string; id: string; record: Record<string, unknown>;
  digest?: string | null;
}
/** Commits, newest first. */
export interface Log {
  context_id: string; commits: CommitInfo[]; has_more: boolean;
}
/** Ids in the Model Context Protocol. */
export interface McpMapping {
  native: "mcp"; server_id?: string; mcp_session_id?: string; resource_uri?: string; resource_template?: string;
  prompt_name?: string; root_uri?: string; jsonrpc_request_id?: string | number;
}
/** Selects a time range of audio or video. */
export interface MediaTimeRange {
  type: "media_time_range"; start_seconds: number; end_seconds: number;
}
/** The membership is as asked; `changed` is false if it already was. */
export interface MemberChanged {
  success: true; team: string; agent_id: string; changed: boolean;
}
/** A member of a team. */
export interface MemberInfo {
  agent_id: string; kind: string; added_by: string; added_at: string;
}
/** All members of the session besides its creator, and those that are new. */
export interface MembersAdded {
  success: true; session_id: string; members: string[]; added: string[];
}
/**
 * All members that are left besides the creator, and those that were removed.
 *
 * `still_members` are agents that were to be removed but are members by another entry, each with that entry.
 */
export interface MembersRemoved {
  success: true; session_id: string; members: string[]; removed: string[]; still_members: Record<string, string>;
}
/** Entries by key: the global ones, and those of each session. */
export interface MemoryByScope {
  global: Record<string, OverviewEntry>; sessions: Record<string, Record<string, OverviewEntry>>;
}
/** The deleted entry. */
export interface MemoryDeleted {
  success: true; key: string; scope: "global" | "session"; previous_version: number;
}
/** One entry. `created_at` and `expires_at` are seconds since 1970. */
export interface MemoryFound {
  scope: "global" | "session"; created_at: number; updated_at: string; expires_at: number | null; trust?: TrustInfo;
  value: unknown; metadata: Record<string, unknown>; success: true; key: string; version: number;
}
/** An entry; `value` and `metadata` only if the call asks for values. */
export interface MemoryInfo {
  scope: "global" | "session"; created_at: number; updated_at: string; expires_at: number | null; trust?: TrustInfo;
  key: string; session_id: string | null; value_size: number; version: number; value: unknown;
  metadata?: Record<string, unknown>;
}
/** A page of an agent's memory. */
export interface MemoryInspected {
  success: true; agent_id: string; entries: InspectedMemory[]; count: number; has_more: boolean;
  next_cursor: string | null;
}
/** Entries, ordered by key: global ones first, then session by session. */
export interface MemoryListed {
  success: true; entries: MemoryInfo[]; count: number; scope_filter: "all" | "global" | "session"; has_more: boolean;
  next_cursor: string | null;
}
/** Your whole memory by scope; `truncated` if values beyond 4 MiB were left out. */
export interface MemoryOverview {
  agent_id: string; memory: MemoryByScope; statistics: MemoryStatistics; resource_info: MemoryResourceInfo;
  truncated?: boolean;
}
/** Settings of the memory. `cleanup_interval` is in seconds; readers never see an expired entry. */
export interface MemoryResourceInfo {
  last_updated: string; supports_subscriptions: true; cleanup_interval: number; max_memory_mb: number;
}
/** The written entry. */
export interface MemorySet {
  success: true; key: string; session_scoped: boolean; expires_at: number | null; scope: "global" | "session";
  stored_at: string; version: number; trust?: TrustInfo;
}
/** Totals of the memory, including entries left out of the answer. */
export interface MemoryStatistics {
  global_keys: number; session_scopes: number; total_entries: number; memory_usage_kb: number;
  expired_entries_cleaned: number;
}
/** Result of a merge, or the review it waits for. `hidden_conflicts` counts keys you may not read. */
export interface Merged {
  context_id: string; merged: boolean; version: number; taken?: string[]; review_id?: string | null;
  conflicts?: ConflictInfo[]; hidden_conflicts?: number;
}
/** The version that a merge commit merged. */
export interface MergedFrom {
  context_id: string; version: number; hash: string;
}
/** The message was added. */
export interface MessageAdded {
  success: true; message_id: number; timestamp: string; trust?: TrustInfo;
}
/** One message. */
export interface MessageInfo {
  id: number; sender: string; sender_type: string; content: string; timestamp: string; visibility: string;
  metadata: Record<string, unknown>; parent_message_id: number | null; agent_id: string; recipient_id: string | null;
  message_type: string; category: string; trust?: TrustInfo;
}
/** A matching message; `matched_by`: words, fuzzy or both. */
export interface MessageMatch {
  message: MessageInfo; score: number; match_preview: string; relevance: string; matched_by: string;
}
/**
 * Best matches first. `searched_count`: number of messages searched, all that you may read.
 *
 * `selection_id`: id of the recorded selection, if `record` was set.
 */
export interface MessageSearchResponse {
  success: true; results: MessageMatch[]; query: string; threshold: number; search_scope: string; message_count: number;
  search_time_ms: number; performance_note: string; cache_hit: boolean; searched_count: number; selection_id?: string;
}
/** Messages in the order sent; `total_count` counts all that match and that you may see. */
export interface Messages {
  success: true; messages: MessageInfo[]; count: number; total_count: number; has_more: boolean;
}
/** A sender's messages, newest first. */
export interface MessagesBySender {
  success: true; messages: MessageInfo[]; sender: string; count: number; has_more: boolean;
}
/** Messages of a time range, oldest first. */
export interface MessagesByTime {
  success: true; messages: MessageInfo[]; timerange: TimeRange; count: number; has_more: boolean;
}
/** A metadata field of documents. `values` are the allowed ones, of a string. */
export interface MetadataField {
  /** Name of the field. */ name: string;
  /** Type of its values. Default: "string". */ type?: "boolean" | "date" | "integer" | "number" | "string";
  /** Documents without it are refused. Default: false. */ required?: boolean;
  /** Allowed values; by default any. */ values?: string[];
  /** What the field means. Default: "". */ description?: string;
}
/**
 * The reported usage and the estimate. Money is in US dollars, null where no price is known.
 *
 * `naive_baseline_tokens`: the conversation alone; `context_engine_savings`: those of it that were not sent,
 * negative if the prompt has more. `document_tokens`: whole documents with evidence in the prompt. `token_factor`:
 * the learned factor of this model's estimate; null if tokens are counted exactly, or until enough calls were
 * reported. `held`: what of the report does not fit the prompt of the receipt; budgets keep what was estimated for
 * the call, and admins are told. `efficiency`: how much of the prompt the answer used; an estimate if no answer was
 * reported. `receipt.show` has it for each item.
 */
export interface MetricsEmitted {
  success: true; receipt_id: string; model: string; input_tokens: number; output_tokens: number;
  cache_read_tokens: number; cache_write_tokens: number; estimated_tokens: number; deviation: number; cost: number | null;
  naive_cost: number | null; naive_baseline_tokens: number; document_tokens: number; engine_assembled_tokens: number;
  context_engine_savings: number; savings_ratio: number; savings_ratio_with_documents: number;
  token_factor: number | null; latency_ms: number | null; quality_score: number | null; held: string[];
  efficiency: Efficiency | null;
}
/** A gap with its status, requests and resolution. */
export interface MissingInfo {
  missing_id: string; severity: "blocking" | "high" | "info" | "low" | "medium";
  status: "detected" | "requested" | "resolved"; question: string;
  scope: "custom" | "handoff" | "review" | "session" | "task" | "tool_invocation" | "turn"; reported_by: string;
  reported_at: string; session_id?: string | null; task_id?: string | null; needed_for?: string | null;
  blocked_actions?: string[]; candidate_sources?: CandidateSource[]; requests?: GapRequest[];
  resolution_refs?: (string | Link)[]; resolved_by?: string | null; resolved_at?: string | null;
}
/** Gaps, most severe and oldest first. If next_after is set, there are more. */
export interface MissingListed {
  missing: MissingInfo[]; next_after?: string | null;
}
/** The open gap. `already_open`: the same question was already open, and nothing changed. */
export interface MissingReported {
  missing_id: string; session_id: string; status: "detected" | "requested" | "resolved";
  severity: "blocking" | "high" | "info" | "low" | "medium";
  scope: "custom" | "handoff" | "review" | "session" | "task" | "tool_invocation" | "turn"; reported_by: string;
  reported_at: string; already_open?: boolean;
}
/**
 * The request. `already_requested`: an identical request exists, and nothing changed.
 *
 * Messages found by a retrieval are added to candidate_sources.
 */
export interface MissingRequested {
  missing_id: string; status: "detected" | "requested" | "resolved";
  form: "peer_task" | "policy_request" | "retrieval" | "tool_invocation" | "user_question"; requested_from: string;
  requested_at: string; key?: string | null; answer_key?: string | null; message_id?: number | null;
  selection_id?: string | null; candidate_sources?: CandidateSource[]; already_requested?: boolean;
}
/** The resolved gap. `already_resolved`: it was already resolved with the same answer. */
export interface MissingResolved {
  missing_id: string; status: "detected" | "requested" | "resolved"; resolution_refs: (string | Link)[];
  resolved_by?: string | null; resolved_at?: string | null; already_resolved?: boolean;
}
/** Ids and token usage in a model API. */
export interface ModelApiMapping {
  native: "model_api"; response_id?: string; message_id?: string; prompt_cache_key?: string; tool_call_id?: string;
  input_tokens?: number; cached_input_tokens?: number;
}
/**
 * Recall@10 of both models on probes (sentences that must retrieve their own chunk).
 *
 * `agreement` is the mean overlap of the two top tens, over probes and recent user queries.
 */
export interface ModelComparison {
  probes: number; recall_before: number; recall_after: number; agreement: number;
}
/**
 * Models that the tenant may use, the serving one first. `limited` if an admin restricted them.
 *
 * `semantic_search_off`: why nothing is embedded, so that searches match words only; only if so.
 */
export interface ModelList {
  models: EmbeddingModelInfo[]; limited: boolean; semantic_search_off?: string;
}
/**
 * Progress of a model migration: `embedded` of `chunks` chunks; chunks added meanwhile get both vectors.
 *
 * `comparison`: recall of both models on the same probes; missing if the old model was unavailable. `canary`: the
 * steps in which the new model answers a `share` of the queries, each with the comparison of both models' answers.
 * `rollback_until`: until then, cancelling returns to the old model. `problem`: why the migration is stalled or
 * was refused.
 */
export interface ModelMigrationInfo {
  from_model: string; to_model: string;
  state: "canary" | "cancelled" | "comparing" | "done" | "dropping" | "embedding" | "refused" | "rolled_back";
  started_by: string; started_at: string; switched_at: string | null; finished_at: string | null; embedded: number;
  chunks: number; comparison: ModelComparison | null; share: number; canary: CanaryStep[]; rollback_until: string | null;
  problem: string | null;
}
/** Calls of a language model for a compaction, with their tokens. */
export interface ModelUsage {
  model: string; calls: number; input_tokens: number; cached_tokens: number; output_tokens: number;
}
/** Modelled cost of sending this prompt now and again in the expected calls, in uncached input tokens. */
export interface Modelled {
  extended: number; rebuilt: number;
}
/** A document. Give one of text and content. */
export interface NewDocument {
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
  text?: string | null; content?: string | null; media_type?: string | null;
  /** Title; default: the one found in the document. */ title?: string | null;
  /** Names and values that searches can filter by. */ metadata?: Record<string, string | number | boolean | null> | null;
  /** Included in every search; needs clearance 3 or admin. Default: false. */ pinned?: boolean;
  /** From 0 to 1; default: that of the domain. */ importance?: number | null;
  /** Time it was written; default: now. */ timestamp?: string | null;
}
/** A call of a tool, as the model made it. */
export interface NewToolCall {
  /** The id that its result refers to. */ call_id: string;
  /** The tool. */ name: string;
  /** JSON text. Default: "{}". */ arguments?: string;
}
/** An event to add. */
export interface NewWindowEvent {
  /** Your id of the event, unique in the window; the same id again adds nothing. */ event_id?: string;
  /** Who speaks; tool for the result of a call; developer is system. Default: "user". */ role?: "assistant" | "system" | "tool" | "user" | "developer";
  /** The text, at most 1048576 bytes; or content parts as in the API of form, by default openai_chat. Default: "". */ content?: string | Record<string, unknown>[];
  /** Name of the speaker or tool. */ name?: string | null;
  /** Calls that an assistant makes. */ tool_calls?: NewToolCall[];
  /** The call that a tool result answers. */ tool_call_id?: string | null;
  /** The wire form of native. */ form?: "anthropic" | "gemini" | "openai_chat" | "openai_responses" | null;
  /** The message as your provider's API has it, if content cannot express it. */ native?: unknown;
  /** Follows from the role by default. */ kind?: "message" | "tool_output" | "workflow" | null;
  /** By default SYSTEM for system, SYSTEM_OUTPUT for tool, INTERNAL for workflow events, else DIALOG. */ category?: Category | null;
  /** How much it matters, from 0 to 1. */ importance?: number | null;
  /** Part of every prompt, whatever its age. Default: false. */ pinned?: boolean;
  /** The agent it is addressed to. */ recipient_id?: string | null;
  /** The kind of message, such as request or result. Default: "message". */ message_type?: string;
  /** Events and items it refers to. */ references?: string[];
  /** Sources of its content. */ source_refs?: string[];
  /** What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of them. */ derived_from?: string[];
  /** When it happened; default: now. */ occurred_at?: string | null;
  /** The workflow step it belongs to. */ step?: string | null;
  /** Why it is added. */ reason?: string | null;
}
/** A candidate that is not in the prompt, with the reason. */
export interface OmittedCandidate {
  ref: string;
  reason: "budget" | "duplicate_coverage" | "low_relevance" | "missing_permission" | "policy_block" | "privacy_risk" | "stale_source" | "unsupported_media";
  detail?: string | null;
}
/** Ids and attributes in OpenTelemetry traces. */
export interface OpenTelemetryMapping {
  native: "opentelemetry"; trace_id?: string; span_id?: string; event_name?: string; conversation_id?: string;
  system?: string; operation_name?: string; token_usage?: Record<string, number>;
}
/** Your tenant's calls of one operation. Percentiles come from a histogram and are approximate. */
export interface OperationMetrics {
  calls: number;
  /** Calls that failed. */ errors: number;
  p50_ms: number; p95_ms: number; p99_ms: number;
}
/** An original event as it is now. `shortened`: this is its beginning; `compaction.expand` has all of it. */
export interface OriginalEvent {
  event_id: string; number: number; role: string; author: string; tokens: number; content?: string; name?: string | null;
  tool_calls?: ToolCall[]; at?: string | null; occurred_at?: string | null; shortened?: boolean; redacted?: boolean;
  trust?: TrustInfo | null;
}
/** Ids in a system that Weftline does not know. */
export interface OtherMapping {
  native: "custom"; system: string; ids: Record<string, unknown>;
}
/** The text of a result of a tool as the tool returned it, or the lines asked for; `lines` are all it has. */
export interface OutputOpened {
  handle: string; text: string; lines: number;
}
/** One entry of a memory. */
export interface OverviewEntry {
  scope: "global" | "session"; created_at: number; updated_at: string; expires_at: number | null; trust?: TrustInfo;
  value: unknown; metadata: Record<string, unknown>;
}
/** Selects a rectangle on a page, in points from its top left corner; pages are counted from 1. */
export interface PageRegion {
  type: "page_region"; page: number; x: number; y: number; width: number; height: number;
}
/**
 * A search result. `score` is from 0 to 1; `ref` is a handle that context_records, show or resolve, opens.
 *
 * Results of the session that the search names have no `session_id`. `trust` is shown where it is not the usual
 * one of the source: a suspicious text may contain an attack.
 * With `explain`: `signals` make up the score, `entities` are mentioned, such as file:src/app.py, `source_ref`
 * is the full reference to the exact passage.
 */
export interface PassageInfo {
  source: "board" | "document" | "event" | "memory" | "message"; domain?: string | null; document_id?: string | null;
  session_id?: string | null; message_id?: number | null; agent_id?: string | null; event_id?: string | null;
  key?: string | null; memory_type?: string | null; workflow_id?: string | null; owner?: string | null; title?: string;
  heading?: string; speaker?: string; timestamp: string; ref: string; score: number; text: string; trust?: Trust;
  signals?: Record<string, number>; entities?: string[]; source_ref?: ContextSourceRef;
}
/** An entry at a snapshot; `value` is null and `pruned` true once the value was pruned. */
export interface PastEntry {
  key: string;
  /** Text, or the JSON that was written. */ value: unknown;
  written_by: string; written_at: string; version: number; expires_at?: string | null; pruned?: boolean;
  trust?: TrustInfo | null;
}
/** One version of a key; `value` is null and `pruned` true once the value was pruned. */
export interface PastVersion {
  version: number;
  /** Text, or the JSON that was written. */ value: unknown;
  written_by: string; written_at: string; value_size_tokens: number; pruned?: boolean;
}
/**
 * Items in scope that are not indexed yet: documents, and events of sessions, memories and windows.
 *
 * `by_words`: something that you wrote is found by its words only so far, not yet by its meaning. `partial`: an
 * index is being rebuilt, so not everything was searched and confidence is lower.
 */
export interface PendingItems {
  documents?: number; events?: number; by_words?: boolean; partial?: boolean;
}
/** Figures of your tenant's calls, and for the operator those of the server process. */
export interface Performance {
  database_performance: DatabasePerformance; system_info: SystemInfo; system_performance: SystemPerformance;
  performance_trends: PerformanceTrends;
  /** Your tenant's calls, by operation. */ operations: Record<string, OperationMetrics>;
  /** Calls of the language model that Weftline uses for summaries. */ chat_model: ChatModelMetrics;
  /** Index lag and background jobs. */ background: BackgroundWork;
  /** Start of counting for your tenant in this process. */ measured_since: string;
  /** Hours in which anything was counted, oldest first, if asked for. */ history: HourMetrics[];
  success: true; timestamp: string; performance_targets: PerformanceTargets; requesting_agent: string;
  resource_info: ResourceInfo;
}
/** The specified performance targets. */
export interface PerformanceTargets {
  session_creation: string; message_insertion: string; message_retrieval_50: string; fuzzy_search_1000: string;
  concurrent_agents: string; cache_hit_ratio: string;
}
/** The last hour compared with up to 24 hours before, over all server processes. */
export interface PerformanceTrends {
  response_time_trend: Trend; throughput_trend: Trend; error_rate_trend: Trend;
  /** Of the servers; unknown outside the operator's tenant. */ cache_efficiency_trend: Trend;
}
/** The error that a performed call was answered with. */
export interface PerformedError {
  code: string; error: string;
}
/** What happens to personal data. */
export interface PiiActions {
  /** When it is written. Default: "allow". */ write?: "allow" | "annotate" | "block" | "mask";
  /** With every export policy; allow: the export policy alone decides. Default: "allow". */ export?: "allow" | "block" | "mask";
  /** In a prompt. Default: "allow". */ prompt?: "allow" | "annotate" | "block" | "mask";
}
/** A pinned item; `text` is its beginning. `key`: of the board, or of memory. */
export interface PinInfo {
  source: "board" | "document" | "event" | "memory" | "message"; session_id?: string | null; message_id?: number | null;
  key?: string | null; memory_type?: string | null; owner?: string | null; tokens: number; pinned_by: string;
  pinned_at: string; text: string;
}
/** Pins that you may read, oldest first. `tokens`: what they add to a prompt. */
export interface PinList {
  success: true; pins: PinInfo[]; tokens: number; limit_tokens: number;
}
/** The item is not pinned any more. */
export interface PinRemoved {
  success: true;
}
/**
 * The tenant's plan. `limits`: all of them by name, null: unlimited; `custom`: those set for this tenant alone.
 *
 * `quotas`: what is used, for callers with the highest clearance, who may see every domain.
 */
export interface PlanShown {
  plan: string; limits: Record<string, unknown>; custom: string[]; quotas: Record<string, QuotaInfo>;
}
/** What an export may contain, in which form, and who may use the policy. */
export interface PolicyDefinition {
  /** What the policy is for. Default: "". */ description?: string;
  /** Participants that may use it. Default: admins. Default: ["permission:admin"]. */ who?: string[];
  /** Highest exported level; restricted: readable by some, private: by one. Default: "private". */ sensitivity?: "internal" | "private" | "restricted";
  /** Export only items of these kinds. Default: all. */ include_kinds?: string[];
  /** Export no items of these kinds, such as message. */ exclude_kinds?: string[];
  /** Export contents (full), only their digests (reference), or neither (none). Default: "full". */ content?: "full" | "none" | "reference";
  /** What to mask: secrets, pii (personal data). Default: ["secrets"]. */ mask?: ("pii" | "secrets")[];
  /** Leave a blocked item out (omit), or export it without content (policy_blocked). Default: "omit". */ on_block?: "omit" | "policy_blocked";
}
/** The deleted policy. `default` now applies to exports that name none. */
export interface PolicyDeleted {
  name: string; default: string;
}
/** An export policy. Exports refer to it by name and `digest` of its definition. */
export interface PolicyInfo {
  name: string; definition: PolicyDefinition; digest: string; built_in?: boolean; is_default?: boolean;
  updated_by?: string | null; updated_at?: string | null;
}
/** The policies you may use; for admins, all. */
export interface PolicyList {
  policies: PolicyInfo[];
}
/** The connection pool of this process. */
export interface PoolStats {
  /** Open now. */ pool_size: number;
  /** Open and idle. */ available_connections: number;
  /** In a transaction. */ checked_out_connections: number;
  /** The share in a transaction, 0 to 1. */ pool_utilization: number | null;
  /** Mean wait for a connection in milliseconds; on SQLite, for the writer. */ wait_time_avg: number | null;
}
/** A source that may have the missing information. */
export interface PossibleSource {
  /** Kind of source, such as document, message, tool or person. */ kind: string;
  /** Where in the source to look. */ hint?: string | null;
  /** URI of the source. */ uri?: string | null;
  /** Id of an item or record. */ ref?: string | null;
}
/**
 * The prompt, ready to send, within the limit. `body`: the request body in the chosen form.
 *
 * `mode`: first, extended (appended to the previous prompt, so that the provider's cache hits) or rebuilt.
 * `omitted`: candidates that are not in the prompt, by reason; `receipt.show` lists them. `confidence`: likelihood
 * that the passages answer the task; `widened`: some are doubtful. `fallback`: nothing was evidence, so that the
 * newest turns of the conversation have the room. `compaction_due`: the
 * window has reached its threshold. `critical_update`: pull your context, it was changed with urgency.
 * `resolved`: what phrases of the task such as "that file" were taken to mean. `unknown_model`: the catalog does
 * not have the named model, so that its limit is a cautious guess. `tool_savings`: what choosing the tools saved.
 * `downgraded_by`: spent budgets because of which there are fewer passages. `pending`: what was just
 * written and could not be found yet. `suspicious`: events of the conversation, the task or tools that look like an
 * attack.
 */
export interface PromptAssembled {
  success: true; receipt_id: string; body: Record<string, unknown>; tokens: number; limit: number;
  mode: "extended" | "first" | "rebuilt"; reason: string; blocks: BlockSummary[]; omitted: Record<string, number>;
  confidence: number | null; widened: boolean; fallback: string | null; savings: Savings; prompt_hash: string;
  compaction_due?: boolean; critical_update?: Record<string, unknown>; resolved: ResolvedReference[];
  unknown_model?: boolean; tool_savings?: ToolSavings; downgraded_by: BudgetName[]; suspicious: SuspiciousItem[];
  pending?: PendingItems; took_ms: number;
}
/** The prompt of a receipt, the same bytes as then. `prompt_hash` was computed again and compared. */
export interface PromptReplayed {
  receipt_id: string; form: "anthropic" | "gemini" | "neutral" | "openai_chat" | "openai_responses"; tokens: number;
  prompt_hash: string; body: Record<string, unknown>;
}
/**
 * The prompt may be sent. `added`: messages that you added at its end.
 *
 * `suspicious`: the places of those that look like an attack and that the policy lets pass; `suspicious_fields`:
 * the names of such fields that you added.
 */
export interface PromptValidated {
  receipt_id: string; valid: boolean; prompt_hash: string; added: number; suspicious: number[];
  suspicious_fields: string[];
}
/**
 * What a proposal changes; everything else stays as it was in each call.
 *
 * `without_items` are refs of board entries, memory and pins, and URIs of documents, that prompts would not have any
 * more.
 */
export interface ProposedSettings {
  /** When and how windows are compacted. */ compaction?: CompactionSettings | null;
  /** Shares of the window by category. */ shares?: Record<string, number> | null;
  /** Another model. */ model?: string | null;
  /** Maximum tokens of a prompt; that of the window and the model hold besides. */ token_budget?: number | null;
  /** Minimum relevance of passages. */ min_score?: number | null;
  /** Names of tools to leave out. */ without_tools?: string[];
  /** Refs of board entries, memory and pins, and URIs of documents, to leave out. */ without_items?: string[];
  /** URIs of documents to leave out, each with that of its original. */ copies?: Record<string, string>;
}
/** Ids and relations in a W3C PROV document. */
export interface ProvMapping {
  native: "prov"; entity?: string; activity?: string; agent?: string; wasDerivedFrom?: string[];
  wasAttributedTo?: string[]; wasGeneratedBy?: string[];
}
/**
 * The receipt of a call. Tokens and cost are those that the provider reported, in US dollars.
 *
 * `given_tokens` and `given_cost`: what it is modelled to have sent and cost without the proxy; `net_savings` is
 * negative where the proxy made it dearer. Money is null for a model without a price.
 */
export interface ProxiedCallInfo {
  call_id: string; session_id: string; model: string; mode: string; at: string; given_tokens: number;
  input_tokens: number; output_tokens: number; cache_read_tokens: number; cache_write_tokens: number; cost: number | null;
  given_cost: number | null; net_savings: number | null;
}
/** Calls of an agent, the latest first; `next_cursor` is set while there are more. */
export interface ProxiedCallList {
  agent_id: string; calls: ProxiedCallInfo[]; next_cursor: string | null;
}
/** What the model proxy may change; what is not set here is set for a parent, a team or the tenant. */
export interface ProxySettings {
  /** observe: nothing; trim: shorten new results of tools, the default; full: also add layers and what the task needs, and compact. */ mode?: "full" | "observe" | "trim" | null;
  /** Tokens from which a result of a tool is shortened; 4000 by default. */ trim_tokens?: number | null;
}
/**
 * What the model proxy may change in the calls of an agent.
 *
 * `mode` observe: nothing; trim: results of tools of at least `trim_tokens` are shortened; full: also layers and
 * what the task needs are added, and the window is compacted.
 */
export interface ProxySettingsShown {
  agent_id: string; mode: "full" | "observe" | "trim"; trim_tokens: number;
}
/** Prunings, newest first; `next_cursor` is set while there are more. */
export interface PruneLog {
  prunings: PruningInfo[]; next_cursor?: string | null;
}
/** What retention removed from a context: number of values, range of versions, and the rule. */
export interface PruningInfo {
  pruning_id: string; context_id: string; pruned_at: string; pruned_by: string; rule: string; versions: number;
  bytes: number; first_version: number; last_version: number;
}
/** The agent's definition, and its memory by type. `has_more` if the list is truncated. */
export interface PulledContext {
  role: string | null; system_prompt: string | null; guardrails: Guardrail[]; config: Record<string, unknown>;
  memory: Record<string, ContextEntry[]>; has_more: boolean;
}
/** The passages for which a version is held: the most suspicious of `flagged` ones. Do not follow them. */
export interface QuarantineInfo {
  flagged: number; passages: FlaggedPassage[]; since: string; approval_id?: string | null;
}
/**
 * What a question found: the evidence is complete at `rank` (0: in pinned documents), with `document_id`.
 *
 * `rank` is None if the first results do not contain it. `confidence` is that of the search.
 */
export interface QuestionResult {
  question: string; found: boolean; rank: number | null; document_id: string | null; confidence: number;
}
/** What is used of a limit; `allowed` is null if it is unlimited. */
export interface QuotaInfo {
  used: number; allowed: number | null;
}
/**
 * A block of the prompt. `digest` names its messages in the text store; `items` are versions by ref.
 *
 * `covers` are the versions of what it contains in a shorter form: the events of a summary. `source` and `trust`
 * are those of its least trusted item. `spans` are where the texts of several items begin and end in its message.
 */
export interface ReceiptBlock {
  block_id: string; kind: "board" | "conversation" | "layer" | "missing" | "pins" | "retrieved" | "summary" | "task";
  digest: string; tokens: number; cache_point?: boolean; items?: Record<string, string>; covers?: Record<string, string>;
  source?: Source; trust?: Trust; spans?: Record<string, [number, number]>;
}
/** Receipts, newest first; `next_cursor` while there are more. */
export interface ReceiptList {
  receipts: ReceiptSummary[]; next_cursor?: string | null;
}
/**
 * What was assembled, from what and why.
 *
 * `mode` extended: appended to the prompt of the previous call; rebuilt: chosen again, for the `reason` given.
 * `modelled` compares both in tokens at the price of uncached input. `versions` are those of the sources read.
 * `efficiency`: how much of the prompt the answer used, with the use of each item; without a reported answer an
 * estimate without items. `task`: the beginning of the message that ends the prompt, null once it is no longer kept.
 * `documents`: the documents of the passages in the prompt, by ref.
 */
export interface ReceiptShown {
  receipt_id: string; session_id: string; agent_id: string; requested_by: string; created_at: string; task: string | null;
  previous_id: string | null; model: string | null; mode: "extended" | "first" | "rebuilt"; reason: string;
  modelled: Modelled | null; tokens: number; tools_tokens: number; limits: TokenLimits; counting: CountingMethod;
  blocks: ReceiptBlock[]; candidates: Candidate[]; omitted: OmittedCandidate[]; shortened: Shortening[];
  documents: Record<string, string>; versions: Record<string, string>; window_tokens: Record<string, number>;
  window_budgets: Record<string, number>; confidence: Confidence; savings: Savings; prompt_hash: string;
  timing_ms: Record<string, number>; tool_savings: ToolSavings | null; compaction: CompactionUse | null;
  budgets: BudgetName[]; downgraded_by: BudgetName[]; usage: ReportedUsage | null; efficiency: Efficiency | null;
}
/**
 * A receipt in a list. `efficiency`: useful over sent tokens, by the answer or estimated.
 *
 * `task`: the beginning of the message that ends the prompt, null once it is no longer kept. `took_ms`: assembling
 * it; `latency_ms`: the model call, where it was reported.
 * `naive_baseline_tokens`: the conversation alone. `document_tokens`: whole documents with evidence in the prompt.
 */
export interface ReceiptSummary {
  receipt_id: string; session_id: string; agent_id: string; created_at: string; task: string | null; model: string | null;
  mode: "extended" | "first" | "rebuilt"; tokens: number; naive_baseline_tokens: number; document_tokens: number;
  savings_ratio: number; savings_ratio_with_documents: number; cached_tokens: number; took_ms: number;
  latency_ms: number | null; efficiency: number | null;
  efficiency_basis: "answer" | "retrieval_scores" | "usual_share" | null;
}
/** The JSON Schema of a record type. */
export interface RecordSchema {
  success?: true; type: string; schema_version: string; schema_id: string; url: string; schema: Record<string, unknown>;
}
/**
 * One record. `content` is an item's content, `base64` the same if it is not text.
 *
 * `stale` is set for a compaction or summary of which sources have changed.
 *
 * `entities` are what the passage of a search result mentions, such as file:src/app.py.
 * `recorded_by`, `recorded_at`, `changed_at` and `seq` are set for stored records only, not for derived ones.
 */
export interface RecordShown {
  type: string; id: string; record: Record<string, unknown>; digest?: string | null; content?: unknown;
  base64?: string | null; entities?: string[]; referenced_by?: ReferencingRecord[]; redaction?: RedactionInfo | null;
  stale?: StaleRecord | null; recorded_by?: string | null; recorded_at?: string | null; changed_at?: string | null;
  seq?: number | null;
}
/**
 * Records in log order. There may be more while next_after is set, even after an empty page.
 *
 * A record with a lifecycle is listed once for every change of it, each time in its current state.
 */
export interface Records {
  records: ListedRecord[]; count: number; has_more: boolean; next_after: string | null;
}
/** The added records. */
export interface RecordsAdded {
  success: true; records: AddedRecord[];
}
/** A redaction; only admins see the reason. */
export interface RedactionInfo {
  state: string; method: string; redacted_by: string; redacted_at: string; reason?: string | null;
}
/** A record that references the item. */
export interface ReferencingRecord {
  type: string; id: string; seq: number;
}
/** A registered tool without its schema. `owner`: the principal whose tree it is for; empty: the tenant. */
export interface RegisteredToolInfo {
  name: string; description: string; server: string; owner: string; tokens: number; registered_by: string;
  registered_at: string;
}
/** Registered tools by name, and the number and tokens of all of them. */
export interface RegisteredToolList {
  tools: RegisteredToolInfo[]; has_more: boolean; total: number; tokens: number;
}
/**
 * Remaining work of reindexing.
 *
 * `events`: number of events left to process for sessions and memories; null if they are not being reindexed.
 * `semantic_search_off`: why texts are indexed by their words only; only if so.
 */
export interface ReindexStatus {
  domains: DomainReindexStatus[]; events: number | null; semantic_search_off?: string;
}
/** A document of a source that could not be put, with the reason. */
export interface RejectedDocument {
  document_id: string; reason: string;
}
/** An entry to remove. */
export interface RemovedKey {
  /** 1 to 200 letters, digits and any of _.:/- , such as billing/limit. */ key: string;
  /** The memory type. Default: "learned_knowledge". */ memory_type?: "conversation_context" | "learned_knowledge" | "team_preferences" | "work_artifacts";
  /** The workflow; only with the memory type conversation_context. */ workflow_id?: string | null;
}
/**
 * What the provider reported for the call of a receipt.
 *
 * `held`: what of it does not fit the prompt of the receipt.
 */
export interface ReportedUsage {
  model: string; input_tokens: number; output_tokens: number; cache_read_tokens: number; cache_write_tokens: number;
  cost?: number | null; latency_ms?: number | null; quality_score?: number | null; reported_at?: number;
  response_id?: string | null; held?: string[];
}
/** A phrase of the query, what it was taken to mean, and the item that says so. */
export interface ResolvedReference {
  phrase: string; entity: string; source: string;
}
/** How the figures are collected. */
export interface ResourceInfo {
  collection_interval: number; retention_hours: number; supports_subscriptions: boolean; admin_only: boolean;
}
/** A window that was restored; `snapshot_before` names its state before, null if nothing changed. */
export interface RestoredWindow {
  agent_id: string; version: number; restored: number; removed: number; snapshot_before: string | null;
}
/** Whether there was a rule; the limits that apply now, and the subject they come from (`follows`). */
export interface RetentionCleared {
  subject: string; cleared: boolean; follows: string; days: number | "indefinite"; versions: number | "all";
}
/** A retention rule. Versions that a snapshot, a branch or a session needs are always kept. */
export interface RetentionRule {
  subject: string; days: number | "indefinite"; versions: number | "all"; snapshot_from: number | null;
  updated_by: string | null; updated_at: string | null;
}
/**
 * The rule of each kind of context, and those of single contexts, which take precedence.
 *
 * `plan_versions`: the plan keeps at most this many versions of each key, whatever a rule says.
 */
export interface RetentionRuleList {
  rules: RetentionRule[]; plan: string; plan_versions: number | "all";
}
/** The review is closed; nothing was merged. */
export interface ReviewDropped {
  review_id: string; state: ReviewState;
}
/**
 * A merge that waits for a human, or was decided; `superseded` if it was merged without a decision.
 *
 * `fingerprint` is another one after a value in conflict has changed.
 */
export interface ReviewInfo {
  review_id: string; context_id: string; from_context_id: string; state: ReviewState; opened_by: string;
  opened_at: string; reason?: string; conflicts?: ConflictInfo[]; hidden_conflicts?: number; fingerprint?: string;
  decided_by?: string | null; decided_at?: string | null;
}
/** The contexts are merged as decided. */
export interface ReviewResolved {
  review_id: string; context_id: string; version: number; taken: string[];
}
/** State of a review. */
export type ReviewState = "abandoned" | "open" | "resolved" | "superseded";
/** Reviews, newest first; `next_cursor` is set while there are more. */
export interface Reviews {
  reviews: ReviewInfo[]; next_cursor?: string | null;
}
/** The context has the content of the target version; `snapshot_before` names the state before the rollback. */
export interface RolledBack {
  context_id: string; rolled_back_to: number; from_version: number; version: number; written: string[]; removed: string[];
  snapshot_before: string | null;
}
/** A route: events of these categories are shown to an agent, to all agents of a type, or to a team. */
export interface RouteView {
  agent_id: string; category: Category; to_agent?: string | null; to_type?: string | null; to_team?: string | null;
}
/** The result of a rule about the action; `error`: why its condition has no result. */
export interface RuleResult {
  name: string; layer: string; level: number; response: "ask" | "block" | "redact" | "terminate" | "warn";
  dry_run: boolean; violated: boolean; error: string | null;
}
/** Recent calls of the agent, for rules that name `calls`. */
export interface SampleCounts {
  /** Calls of the last minute. Default: 0. */ minute?: number;
  /** Calls of the last hour. Default: 0. */ hour?: number;
}
/**
 * Tokens and money of a prompt against the conversation alone: what the agent would send without Weftline.
 *
 * That is `naive_baseline_tokens` and `naive_cost`; `savings_ratio` is negative if the prompt has more tokens.
 * `document_tokens` are those of the whole documents of which evidence is in the prompt; with them, the prompt saves
 * `savings_ratio_with_documents`. `cached_tokens` are expected to be read from the provider's cache. Money is in
 * US dollars, None without a known price.
 */
export interface Savings {
  naive_baseline_tokens: number; document_tokens: number; engine_assembled_tokens: number; savings_ratio: number;
  savings_ratio_with_documents: number; cached_tokens: number; naive_cached_tokens: number; cost: number | null;
  naive_cost: number | null;
}
/**
 * Sums by group, most tokens first. Money is in US dollars, and null where no price is known.
 *
 * `cost` and `naive_cost` are modelled with prompt caches. Figures below `reported` are the provider's.
 */
export interface SavingsReport {
  by: string; rows: SavingsTotal[];
}
/**
 * Sums over receipts. Reported figures cover the calls with reported usage, `reported` of them.
 *
 * `naive_baseline_tokens` and `naive_cost` are those of the conversations alone, `document_tokens` those of the
 * whole documents with evidence in a prompt.
 */
export interface SavingsTotal {
  group: string; calls: number; naive_baseline_tokens: number; document_tokens: number; engine_assembled_tokens: number;
  cached_tokens: number; cost: number | null; naive_cost: number | null; reported: number; input_tokens: number;
  output_tokens: number; cache_read_tokens: number; cache_write_tokens: number; reported_cost: number | null;
}
/**
 * Results, best first, at most top_k. `confidence`: likelihood that they contain the answer, from 0 to 1.
 *
 * `unsure`: it is low, so only the best few results are returned; `hint` says what to do. `pinned`: items that
 * come with every answer, whatever their score. `resolved`: what phrases such as "that file" were taken to mean.
 * `lexical_only`: why only words were matched, not meaning.
 */
export interface SearchResponse {
  pending?: PendingItems | null; searched?: number; model?: string; took_ms?: number; results: PassageInfo[];
  confidence: number; unsure?: boolean; hint?: string; pinned?: PassageInfo[]; resolved?: ResolvedReference[];
  lexical_only?: string; min_score?: number; selection_id?: string;
}
/** What happens to secrets. */
export interface SecretActions {
  /** When it is written. Default: "annotate". */ write?: "allow" | "annotate" | "block" | "mask";
  /** With every export policy; allow: the export policy alone decides. Default: "allow". */ export?: "allow" | "block" | "mask";
  /** In a prompt. Default: "mask". */ prompt?: "allow" | "annotate" | "block" | "mask";
}
/**
 * A tool to load, as a model gets it.
 *
 * `registered_as`: its name where it was registered, if providers do not take that.
 */
export interface SelectedTool {
  name: string; description: string; input_schema: Record<string, unknown>; registered_as?: string;
}
/** A server with its tools. Of `variables` only references to the environment are shown. */
export interface ServerInfo {
  name: string; kind: "command" | "url"; target: string; agents: string[]; answer_tokens: number;
  connection: "agent" | "tenant"; cache_seconds: number; added_by: string; added_at: string; approved: number;
  held: number; quarantined: number; problem: string; variables: Record<string, string>; tools: ServerTool[];
}
/** Servers by name. */
export interface ServerList {
  servers: ServerSummary[];
}
/** A server and the number of its tools by state. `problem` is why it cannot be reached, if it cannot. */
export interface ServerSummary {
  name: string; kind: "command" | "url"; target: string; agents: string[]; answer_tokens: number;
  connection: "agent" | "tenant"; cache_seconds: number; added_by: string; added_at: string; approved: number;
  held: number; quarantined: number; problem: string;
}
/** A tool of a server. `state`: held and quarantined ones are neither listed nor called, for the `reason`. */
export interface ServerTool {
  name: string; description: string; state: "approved" | "held" | "quarantined"; read_only?: boolean; reason?: string;
}
/** The session is now read-only. */
export interface SessionArchivedAt {
  success: true; session_id: string; archived_at: string;
}
/** Limits and options of one session: its board and its windows. */
export interface SessionConfig {
  /** Larger values are rejected. Default: 1000. */ max_value_tokens?: number;
  /** Values of this size or more return a warning; by default 80 % of max_value_tokens. */ warn_value_tokens?: number | null;
  /** Values of this size or more return advice to shorten; by default 50 % of max_value_tokens. */ advise_value_tokens?: number | null;
  /** Limit of all values of the board together. Default: 10000. */ max_total_tokens?: number;
  /** Limit of the keys of the board; by default as many as the tenant's plan allows. */ max_keys?: number | null;
  /** How many versions of each key keep their value in history, within the tenant's plan. Default: 100. */ keep_versions?: number;
  /** Allow keys of the form namespace:key. Default: false. */ namespaces?: boolean;
  /** Token counter; the exact ones need the weftline[tokenizers] extra. Default: "approximate". */ tokenizer?: "approximate" | "cl100k_base" | "o200k_base";
  /** False: its messages and keys are not embedded, and found by their words only. Default: true. */ semantic_search?: boolean;
  /** The key conventions rendered for its agents. Default: "default". */ conventions?: string;
  /** A human approves each compaction of its windows before it is used. Default: false. */ compaction_review?: boolean;
  /** What is recorded as an envelope when it happens: turn (each assembled prompt), tool_invocation (each tool call with its answer), task (each message or event of task_message_types). */ envelopes?: ("task" | "tool_invocation" | "turn")[];
  /** Types of messages and events that end a task. Default: ["result", "task_completed"]. */ task_message_types?: string[];
}
/** The session was created; `existed`: it was there already, with its own purpose, config and members. */
export interface SessionCreated {
  success: true; session_id: string; created_by: string; created_at: string; existed?: boolean;
}
/** The session was deleted, with this many messages, keys, windows and so on. */
export interface SessionDeleted {
  success: true; session_id: string; removed: Record<string, number>;
}
/**
 * A session with its latest messages; `message_count` counts those visible to you.
 *
 * `open_missing_context` counts unresolved missing-context records, if there are any.
 */
export interface SessionFound {
  success: true; session: SessionInfo; messages: MessageInfo[]; message_count: number; open_missing_context?: number;
}
/** A session. `members` are those who may see it besides its creator. */
export interface SessionInfo {
  id: string; purpose: string; created_at: string; updated_at: string; created_by: string; is_active: boolean;
  metadata: Record<string, unknown>; archived_at: string | null; config: SessionConfig; branches: string[];
  members: string[];
}
/** Sessions, newest first. */
export interface SessionList {
  success: true; sessions: SessionInfo[]; count: number; has_more: boolean; next_cursor: string | null;
}
/** The session resource: state, latest messages, figures. */
export interface SessionOverview {
  session: SessionInfo; messages: MessageInfo[]; statistics: SessionStatistics; resource_info: SessionResourceInfo;
}
/** Metadata of the resource. */
export interface SessionResourceInfo {
  last_updated: string; requesting_agent: string; supports_subscriptions: true; cache_ttl: number;
}
/** Figures of a session. Only `message_count` includes messages that you may not see, but no direct ones. */
export interface SessionStatistics {
  message_count: number; visible_message_count: number; unique_agents: number; last_activity: string;
  session_duration_minutes: number; coordination_locks: number;
}
/** What a tree (tree:ID) or an agent (agent:ID) may spend of a budget, and has spent. */
export interface ShareInfo {
  share: string; tokens: number | null; cost: number | null; state: "near" | "reached" | "within";
  used_tokens: number | null; used_cost: number | null; calls: number | null;
}
/** A version of the memory of a team or user that the session has from now on, and the one that it had before. */
export interface SharedMemoryVersion {
  context_id: string; version: number; from_version?: number | null;
}
/** An event that stays in its place with a shorter content. */
export interface ShortenedView {
  original: OriginalEvent; tokens: number; content?: string; valid?: boolean;
}
/** A candidate of which only a part is in the prompt: beginning and end, or what a compaction kept of it. */
export interface Shortening {
  ref: string; original_tokens: number; kept_tokens: number; compacted?: boolean;
}
/**
 * One side of a conflict: text on a board, JSON elsewhere.
 *
 * `value` is null if it was `pruned` or is in object storage (`outside`).
 */
export interface Side {
  value: unknown; key_version: number; author: string; agent_id: string; at: string; pruned?: boolean; outside?: boolean;
}
/**
 * Nearest passages by meaning, nearest first, at most top_k.
 *
 * A score is the cosine similarity, 0 to 1, where 1 is the same meaning; not the calibrated relevance of a search.
 */
export interface SimilarResponse {
  pending?: PendingItems | null; searched?: number; model?: string; took_ms?: number; results: PassageInfo[];
}
/** The label is deleted; the version stays as long as retention keeps it. */
export interface SnapshotDeleted {
  context_id: string; deleted: string;
}
/** A snapshot of the board; `automatic` if Weftline took it. */
export interface SnapshotInfo {
  label: string; created_by: string; created_at: string; automatic?: boolean;
}
/** Snapshots, newest first. A page may be short; `next_cursor` is set while there are more. */
export interface SnapshotList {
  snapshots: SnapshotListed[]; next_cursor?: string | null;
}
/** A snapshot; `automatic` if Weftline took it. */
export interface SnapshotListed {
  context_id: string; label: string; version: number; created_by: string; created_at: string; automatic: boolean;
}
/** Entries of the board at a snapshot, as far as you may read them. */
export interface SnapshotRead {
  label: string; created_by: string; created_at: string; entries: PastEntry[];
}
/** Keys changed by the restore; every change is a new version. */
export interface SnapshotRestored {
  restored: string; written: string[]; deleted: string[];
}
/** The snapshot. Its version is kept until the snapshot is deleted. */
export interface SnapshotTaken {
  context_id: string; label: string; version: number; hash: string; created_by: string; created_at: string;
}
/** Snapshots, oldest first. */
export interface Snapshots {
  snapshots: SnapshotInfo[];
}
/** Where a text came from. */
export type Source = "agent" | "document" | "human" | "import" | "system" | "tool";
/** A new source with the path of its hook and the secret for signing calls, which is only shown once. */
export interface SourceAdded {
  source_id: string; domain: string; kind: "folder" | "hook" | "url"; location: string; prefix: string; include: string[];
  exclude: string[]; every_seconds: number | null; watch: boolean; agent_id: string; created_at: string; enabled: boolean;
  error: string | null; sync_requested: boolean; synced_at: string | null; next_sync_at: string | null;
  last_sync: SyncCounts; hook: string; secret: string;
}
/** A source, without its secret. `last_sync` is the result of the last sync, `error` why it failed. */
export interface SourceInfo {
  source_id: string; domain: string; kind: "folder" | "hook" | "url"; location: string; prefix: string; include: string[];
  exclude: string[]; every_seconds: number | null; watch: boolean; agent_id: string; created_at: string; enabled: boolean;
  error: string | null; sync_requested: boolean; synced_at: string | null; next_sync_at: string | null;
  last_sync: SyncCounts;
}
/** Sources, oldest first. */
export interface SourceList {
  sources: SourceInfo[];
}
/** The removed source and the number of removed documents. */
export interface SourceRemoved {
  source_id: string; documents: number;
}
/** Where the passage of a source ref is now. */
export interface SourceResolved {
  outcome: "exact" | "lost" | "moved";
  /** Explanation of the outcome. */ reason: string;
  /** Confidence that this is the passage. */ confidence: number;
  /** Similarity to the original text. Default: 0.0. */ similarity?: number;
  source_unchanged?: boolean | null; found_by?: string | null; text?: string | null;
  was?: TextQuote | TextPosition | ByteRange | LineRange | JsonPointer | Css | XPath | PageRegion | MediaTimeRange | CustomSelector | null;
  now?: TextQuote | TextPosition | ByteRange | LineRange | JsonPointer | Css | XPath | PageRegion | MediaTimeRange | CustomSelector | null;
  selector?: (TextQuote | TextPosition | ByteRange | LineRange | JsonPointer | Css | XPath | PageRegion | MediaTimeRange | CustomSelector)[];
  source_id: string; uri: string;
}
/** Sources of a compaction or summary that were changed, removed or redacted since; `refresh`: what to do. */
export interface StaleRecord {
  items: string[]; count: number; refresh: string;
}
/** A step. `owner`: whose tree it is for; empty: the whole tenant. `endpoint`: where clients enter it. */
export interface StepInfo {
  name: string; description: string; tools: string[]; owner: string; endpoint: string; defined_by: string;
  defined_at: string;
}
/** Steps by name. */
export interface StepList {
  steps: StepInfo[];
}
/**
 * An entry at a version: text on a board, JSON elsewhere.
 *
 * `value` is null if it was `pruned`, is in object storage (`outside`) or was `truncated` because the response
 * is full. Name the key to get a value that is outside or truncated.
 */
export interface StoredEntry {
  key: string; value: unknown; key_version: number; author: string; agent_id: string; at: string; size?: number;
  size_tokens?: number; expires_at?: string | null; pruned?: boolean; outside?: boolean; truncated?: boolean;
  media_type?: string | null; base64?: string | null;
}
/** The change was made. */
export interface Success {
  success: true;
}
/**
 * A summary next to what it stands for: `originals`, what it leaves out, and the key facts of these events.
 *
 * `valid` is false if an original was removed, redacted or changed since: then prompts have the originals again,
 * and the text is not shown.
 */
export interface SummaryView {
  summary_id: string; title: string;
  method: "abstractive_summary" | "extractive_summary" | "rolling_summary" | "structured_digest"; tokens_before: number;
  tokens: number; text?: string; valid?: boolean; confidence?: number; trust?: Trust | null; loss_notes?: string[];
  facts?: FactView[]; facts_omitted?: number; originals?: OriginalEvent[]; originals_omitted?: number;
}
/** A text that looks like an attack: an event_id, `task` or `tool:NAME`; `withheld` from the prompt or not. */
export interface SuspiciousItem {
  ref: string; trust: TrustInfo; withheld: boolean;
}
/** Branch that your calls use from now on, unless they name another. */
export interface Switched {
  context_id: string; branch: string;
}
/** Result of a sync; `failures` are the first of the failed documents. */
export interface SyncCounts {
  added: number; updated: number; removed: number; unchanged: number; failed: number; failures: RejectedDocument[];
}
/** The sync is requested; list_sources shows its result. */
export interface SyncRequested {
  source_id: string;
}
/** The database connection. */
export interface SystemInfo {
  pool_initialized: boolean;
  /** The file's name, or host and database; no credentials. */ database_url: string;
  min_pool_size: number;
  /** Null if unlimited. */ max_pool_size: number | null;
  /** Seconds a connection may take to open; on SQLite, to get a lock. */ connection_timeout: number;
}
/** The process, and your tenant's activity in it. */
export interface SystemPerformance {
  /** Resident memory of the process in MiB; the peak on systems that report only that. Null outside the operator's tenant. */ memory_usage_mb: number | null;
  /** Recent CPU use of the process; above 100 on several cores. Null outside the operator's tenant. */ cpu_usage_percent: number | null;
  /** Your tenant's sessions in use, last 5 minutes. */ active_sessions: number;
  /** Your tenant's callers, last 5 minutes. */ active_agents: number;
  /** Your tenant's messages, last minute. */ messages_per_second: number | null;
  /** Your tenant's searches, last minute. */ search_operations_per_minute: number | null;
}
/** What was deleted with the team: members, bytes of memory, and whether it had guidelines. */
export interface TeamDeleted {
  success: true; team: string; members: number; memory_bytes: number; had_layer: boolean;
}
/** A team. `members` is the number of its members. */
export interface TeamInfo {
  team: string; description: string; members: number; created_by: string; created_at: string; updated_at: string;
}
/** Teams, by name. */
export interface TeamList {
  teams: TeamInfo[]; has_more: boolean;
}
/** A team with its members. `memory_version` and `layer_version` are 0 where it has no memory or guidelines. */
export interface TeamShown {
  team: string; description: string; members: MemberInfo[]; memory_version: number; memory_bytes: number;
  layer_version: number; created_by: string; created_at: string; updated_at: string;
}
/**
 * A template: a domain that is created from it has a copy of it.
 *
 * `pinned`: documents with such ids are part of every search; `retention_days`: documents are deleted so many days
 * after their timestamp; `questions` are evaluated once documents are indexed.
 */
export interface TemplateInfo {
  name: string; version: number; description: string; chunking: ChunkingOptions; metadata: MetadataField[];
  pinned: string[]; retention_days: number | null; questions: ExampleQuestion[];
}
/** Templates, by name. */
export interface TemplateList {
  templates: TemplateSummary[];
}
/** A template in a list. */
export interface TemplateSummary {
  name: string; version: number; description: string;
}
/** Selects a passage by character offsets; `end` is exclusive. */
export interface TextPosition {
  type: "text_position"; start: number; end: number;
}
/** Selects a passage by its text; prefix and suffix disambiguate it. */
export interface TextQuote {
  type: "text_quote"; exact: string; prefix?: string; suffix?: string;
}
/** The time range searched, in UTC. */
export interface TimeRange {
  start: string; end: string;
}
/** A token, shown once. */
export interface TokenIssued {
  success: true; token: string; agent_id: string; agent_type: string; permissions: string[]; expires_at: string;
  token_type: "Bearer"; issued_at: string; step?: string;
}
/** The limit of the prompt: the smallest of the budget, the window's limit, and the model's less its output. */
export interface TokenLimits {
  limit: number; token_budget: number | null; window_tokens: number; model_tokens: number; reserved_output_tokens: number;
}
/** A call of a tool by a model. `arguments` is JSON text, as the model wrote it. */
export interface ToolCall {
  call_id: string; name: string; arguments: string;
}
/** The answer of a tool: its content as MCP has it, and its structured content, if it has one. */
export interface ToolCalled {
  content: Record<string, unknown>[]; structured?: Record<string, unknown> | null; is_error?: boolean;
}
/** A tool with all its fields. Each action of a tool with several has its own output schema, see TOOL.ACTION. */
export interface ToolDescription {
  name: string; description: string; read_only: boolean; input_schema: Record<string, unknown>;
  output_schema?: Record<string, unknown> | null;
  /** Of a tool of your runtime: where it comes from. Call it there. */ runtime?: string | null;
}
/** A tool of a runtime, as models see it. */
export interface ToolDraft {
  /** Letters, digits, '_', '-', '.' and '/', as models call it. */ name: string;
  /** What it does and when to use it. Default: "". */ description?: string;
  /** JSON Schema of its arguments. */ input_schema?: Record<string, unknown>;
  /** Tasks that it serves, as users put them; it is found by them. */ examples?: string[];
}
/**
 * Tools that were chosen for the task: their number and tokens, against all that could have been loaded.
 *
 * Tokens are estimated alike for both. `kept`: the list of the previous prompt. `named`: further ones, by name.
 * `registered`: names as registered, by those in the prompt, where providers do not take them.
 */
export interface ToolSavings {
  available: number; available_tokens: number; loaded: number; loaded_tokens: number; saved_tokens: number; kept: boolean;
  named: string[]; registered: Record<string, string>;
}
/** Tools that you may call, best first. */
export interface ToolsFound {
  tools: FoundTool[];
}
/** Names of tools by what happened to them; `unchanged` are as they were. */
export interface ToolsRegistered {
  success: true; added: string[]; changed: string[]; removed: string[]; unchanged: number;
}
/**
 * The tools that fit a task: at most ten, by name, the same until the task changes.
 *
 * `named`: further tools that may fit, by name only; load one with `include`. `kept`: the list of the previous
 * call. `available_tokens`: of all tools that could have been loaded; `saved_tokens`: of those that were not.
 */
export interface ToolsSelected {
  tools: SelectedTool[]; named: string[]; kept: boolean; available: number; available_tokens: number;
  loaded_tokens: number; saved_tokens: number;
}
/** The direction of a figure; unknown until there is enough data. */
export type Trend = "decreasing" | "increasing" | "stable" | "unknown";
/**
 * What would have changed in the last calls under other settings.
 *
 * Every call is planned twice: with the settings that it had (the control) and with the proposed ones. The effect is
 * the difference of the two. `exact` of the `calls` come out as they were sent in the control; `drift_tokens` is
 * by how many tokens the others differ from their receipts. `changed` calls would have had another prompt.
 * `tokens` and `cost` are those of the control, `tried_*` those of the trial. `scored` calls have evidence of
 * which items the answer used: `useful` items in all, of which `kept` are still in the prompts, `shortened` in a
 * shorter form only, `lost` not at all. `dropped` items were in prompts and would not be any more; `doubtful` of
 * them may have been useful. `risks` are what speaks against the proposal, which is `safe` if there are none.
 * `assumptions` say what was not replayed.
 */
export interface Trial {
  calls: number; exact: number; drift_tokens: number; changed: number; scored: number; tokens: number;
  tried_tokens: number; cached_tokens: number; tried_cached_tokens: number; cost: number | null;
  tried_cost: number | null; useful: number; kept: number; shortened: number; lost: number; dropped: number;
  doubtful: number; added: number; failed: number; safe: boolean; risks: string[]; assumptions: string[];
}
/**
 * One earlier call, as it was and as it would have been. Money is in US dollars, null without a price.
 *
 * `exact`: planned again with its own settings (the control) it comes out as it was sent. `tokens` are those of
 * the control, `tried_tokens` those of the trial, `drift_tokens` by how many the control differs from the receipt.
 * `lost` are useful items that the prompt would not have had, `shortened` those that it would have had in a
 * shorter form only, `doubtful` items that would not be in it and may have been useful. `error`: the prompt could
 * not have been assembled. `removed` and `gained` are the refs of the `dropped` and `added` items, where one
 * call was asked for.
 */
export interface TriedCall {
  receipt_id: string; session_id: string; created_at: number; mode: string; tokens: number; tried_tokens: number;
  cached_tokens: number; tried_cached_tokens: number; cost?: number | null; tried_cost?: number | null; exact?: boolean;
  drift_tokens?: number; changed?: boolean; useful?: number; kept?: number; shortened?: string[]; lost?: string[];
  doubtful?: string[]; dropped?: number; added?: number; scored?: boolean; error?: string | null; removed?: string[];
  gained?: string[];
}
/** How far a text is trusted: `suspicious` if a check found an attack in it or in what it was derived from. */
export type Trust = "suspicious" | "trusted" | "untrusted";
/** Source and trust of an item, shown where they are not those of its author. */
export interface TrustInfo {
  trust: Trust; source: Source; reasons?: string[]; derived_from?: string[]; approved_by?: string | null; held?: boolean;
}
/** The trust policy of a tenant. Every default is safe. */
export interface TrustPolicy {
  /** What happens to injected instructions on write, by source. */ injection?: InjectionActions;
  /** What happens to a flagged block of a prompt. Default: "drop". */ prompt_injection?: "annotate" | "block" | "drop" | "quarantine";
  /** What happens to secrets. */ secrets?: SecretActions;
  /** What happens to personal data. */ pii?: PiiActions;
  /** What happens to an agent that tries to change its own rules. Default: "log". */ on_violation?: "disable_agent" | "end_session" | "log";
  /** Seconds after which a held call expires. Default: 86400. */ approval_seconds?: number;
  /** Clearance that a human needs to decide about held calls. Default: 3. */ approver_clearance?: number;
  /** Whether an agent may roll back the memory and definition of agents below it with any clearance that is not below theirs. False: it needs clearance 4 and 3, as everyone. Default: false. */ rollback_by_tree?: boolean;
  /** Whether prompts begin with the rules of Weftline and have its tags around layers. False: they begin with the tenant's own texts, and only texts of others keep a tag. Default: true. */ platform_layer?: boolean;
  /** Whether the model proxy refuses calls of models while Weftline cannot find out who calls, and answers whose tool calls guardrails cannot be applied to, and withholds results of tools that look like an attack. False: it passes them on. Default: false. */ proxy_fails_closed?: boolean;
}
/**
 * A page of rows as text: sums by interval, agent, session, step, model and kind of call.
 *
 * Pages put together are the whole export. Cells that a spreadsheet would take for a formula begin with an apostrophe.
 */
export interface UsageExported {
  form: "csv" | "json"; rows: number; content: string; next_cursor: string | null;
}
/**
 * What calls cost and how well their prompts were used. Money is in US dollars, null if no call has a price.
 *
 * `total_tokens` and `cost` are those that the provider reported, and the expected ones of the prompt for calls
 * without a report; `unpriced_calls` are of models without a price. Durations are means in milliseconds.
 * `efficiency` is useful over sent tokens, layers counted apart, of `scored_calls`; `estimated_calls` had no
 * answer to compare with. `window_fill`: part of their windows that prompts took. `naive_baseline_tokens`,
 * `naive_cost` and `savings_ratio` compare with the conversations alone, negative if prompts were larger;
 * `document_tokens` are those of the whole documents with evidence in a prompt. `net_savings` is `naive_cost`
 * less `expected_cost`: negative where Weftline, with its own calls of models, made them dearer. For calls through
 * the model proxy, the conversation alone is what their clients sent.
 */
export interface UsageFigures {
  calls: number; reported_calls: number; failed_calls: number; unpriced_calls: number; total_tokens: number;
  input_tokens: number; output_tokens: number; cache_read_tokens: number; cache_write_tokens: number;
  naive_baseline_tokens: number; document_tokens: number; engine_assembled_tokens: number; cached_tokens: number;
  savings_ratio: number; savings_ratio_with_documents: number; cost: number | null; expected_cost: number | null;
  naive_cost: number | null; reported_cost: number | null; net_savings: number | null; gather_ms: number;
  retrieve_ms: number; plan_ms: number; render_ms: number; provider_ms: number | null; quality_score: number | null;
  scored_calls: number; estimated_calls: number; sent_tokens: number; useful_tokens: number; overhead_tokens: number;
  efficiency: number | null; window_fill: number | null;
}
/** Who you are, and advice: an overview with all topics, or one topic with its operations. */
export interface UsageGuidance {
  success: true; guidance_type: string; agent_id: string; agent_type: string;
  access_level: "ADMIN" | "AGENT" | "READ_ONLY"; permissions: string[]; not_granted: string[];
  /** What to do first, or how to use the topic. */ advice: string[];
  /** The tools that you may call, by topic. In the overview. */ topics: Record<string, string[]>;
  /** The tools, and actions of tools, that you may call. In a topic. */ operations: Record<string, string>;
  /** Arguments of the topic's first operation. In a topic. */ example: Record<string, unknown>;
  /** Your rate limits, by class of calls. In troubleshooting. */ rate_limits: Record<string, string>;
}
/**
 * Usage by group, most tokens first, intervals oldest first; `total` is over all groups, also those left out.
 *
 * `since` and `until` are the interval that was added up: whole minutes, or hours and days where minutes are no
 * longer kept. A call of an agent in several teams counts for each of them, but once in `total`.
 */
export interface UsageReported {
  by: "agent" | "day" | "hour" | "kind" | "minute" | "model" | "session" | "step" | "team" | "tenant";
  since: string | null; until: string; rows: UsageRow[]; left_out: number; total: UsageFigures;
}
/**
 * The usage of one group: a name, or the start of an interval. Empty: calls without one.
 *
 * (other) are names beyond the number that is kept for an interval, and those of sessions and steps that are not for
 * you; (deleted) those of deleted sessions.
 */
export interface UsageRow {
  calls: number; reported_calls: number; failed_calls: number; unpriced_calls: number; total_tokens: number;
  input_tokens: number; output_tokens: number; cache_read_tokens: number; cache_write_tokens: number;
  naive_baseline_tokens: number; document_tokens: number; engine_assembled_tokens: number; cached_tokens: number;
  savings_ratio: number; savings_ratio_with_documents: number; cost: number | null; expected_cost: number | null;
  naive_cost: number | null; reported_cost: number | null; net_savings: number | null; gather_ms: number;
  retrieve_ms: number; plan_ms: number; render_ms: number; provider_ms: number | null; quality_score: number | null;
  scored_calls: number; estimated_calls: number; sent_tokens: number; useful_tokens: number; overhead_tokens: number;
  efficiency: number | null; window_fill: number | null; group: string;
}
/** Whether every hash matches. `problem` names the damaged key to admins only. */
export interface Verified {
  context_id: string; intact: boolean; commits: number; contexts: number; problem?: string | null;
}
/** The visibility was changed and takes effect at once. */
export interface VisibilityChanged {
  success: true; message_id: number; visibility: string; previous_visibility: string;
}
/** A target and selector in Web Annotation. */
export interface WebAnnotationMapping {
  native: "web_annotation"; target?: string; selector_type?: string; start?: number; end?: number; exact?: string;
  prefix?: string; suffix?: string;
}
/** A new webhook with its secret, which is shown only once. */
export interface WebhookCreated {
  webhook_id: string; url: string; types: string[]; session_id: string | null; description: string; agent_id: string;
  created_at: string; enabled: boolean; reason: string | null; behind: number; missed: number; pending: number;
  dead: number; delivered: number; host: string; secret: string;
}
/** The webhook and its pending deliveries were deleted. */
export interface WebhookDeleted {
  webhook_id: string;
}
/**
 * A webhook without its secret, with its address shortened.
 *
 * `behind` is its lag: events not yet considered; `missed` of them are past retention and will not be sent.
 */
export interface WebhookInfo {
  webhook_id: string; url: string; types: string[]; session_id: string | null; description: string; agent_id: string;
  created_at: string; enabled: boolean; reason: string | null; behind: number; missed: number; pending: number;
  dead: number; delivered: number;
}
/** Webhooks, oldest first. */
export interface WebhookList {
  webhooks: WebhookInfo[];
}
/** How many dead letters were queued again, or the seq from which the log is read again. */
export interface WebhookReplayed {
  revived?: number; from_seq?: number | null;
  /** Events up to this seq are past retention and are not sent again. */ pruned_through?: number | null;
}
/** The receiver's status, or the error that prevented an answer. */
export interface WebhookTested {
  delivered: boolean; status: number | null; error: string | null;
}
/** The window is deleted, with its events and their history. */
export interface WindowDeleted {
  session_id: string; agent_id: string; events: number;
}
/** The event that was removed, null if the window had none; `count` events are left. */
export interface WindowEventPopped {
  session_id: string; agent_id: string; event: WindowEventView | null; count: number;
}
/**
 * An event of a window, recorded `at`; `occurred_at` if it happened before.
 *
 * `routed`: it is in the window of `agent_id`; `redacted`: its content is hidden.
 *
 * `shown_as` data: it was written as system text by an agent that is not above the reader; prompts only quote it.
 */
export interface WindowEventView {
  event_id: string; number: number; category: Category; kind: "message" | "tool_output" | "workflow"; role: string;
  content: string; agent_id: string; author: string; at: string; tokens: number; item_id: string;
  occurred_at?: string | null; step?: string | null; reason?: string | null; name?: string | null;
  tool_calls?: ToolCall[]; tool_call_id?: string | null; native?: unknown; importance?: number | null; pinned?: boolean;
  recipient_id?: string | null; message_type?: string; references?: string[]; source_refs?: string[]; routed?: boolean;
  redacted?: boolean; shown_as?: "data" | null; trust?: TrustInfo | null;
}
/** Events in order of time, at most 4 MiB; `total_count` counts all. */
export interface WindowEvents {
  session_id: string; agent_id: string; events: WindowEventView[]; count: number; total_count: number; has_more: boolean;
}
/** Windows by agent id. */
export interface WindowList {
  session_id: string; windows: WindowSummary[]; next_cursor: string | null;
}
/** Ids of the inherited events that changed; all others stayed as they were. */
export interface WindowRefreshed {
  session_id: string; agent_id: string; parent_id: string; added: string[]; updated: string[]; removed: string[];
}
/** All routes from a window. */
export interface WindowRoutes {
  session_id: string; agent_id: string; routes: RouteView[];
}
/** A window in a list. */
export interface WindowSummary {
  agent_id: string; context_id: string; limit: number; tokens: number; last_number: number; parent_id: string | null;
  shares_with: string | null; updated_at: string;
}
/** A version of a window. */
export interface WindowVersion {
  agent_id: string; context_id: string; version: number;
}
/**
 * A window: `limit` is the model's context less the reserved output, and the minimum over its sharers.
 *
 * `tokens` are those of its events, `compacted_tokens` those of what a compaction has left of them in prompts.
 * `context_id` names its history. `clamps` lists where it, or a sub-agent's window, is smaller than its parent's.
 */
export interface WindowView {
  session_id: string; agent_id: string; context_id: string; model: string | null; model_tokens: number;
  reserved_tokens: number; limit: number; tokens: number; compacted_tokens: number; usage: CategoryUse[];
  last_number: number; compaction_threshold: number; threshold_reached: boolean; parent_id: string | null;
  shares_with: string | null; shared_by: string[]; clamps: Clamp[]; routes: RouteView[]; autosave: boolean;
  created_at: string; updated_at: string;
}
/** Selects the first node that matches an XPath. */
export interface XPath {
  type: "xpath"; path: string;
}
export interface AdviseListParams {
  /** The agent; default: you, for admins the busiest. */ agent_id?: string | null;
  /** How many of the agent's last calls to analyse or replay. Default: 50. */ calls?: number;
}
export interface AdviseShowParams {
  /** Id of a recommendation: agent, kind and a hash, such as analysis.tools.1f9a3c. */ recommendation_id: string;
  /** How many of the agent's last calls to analyse or replay. Default: 50. */ calls?: number;
}
export interface AdviseTryParams {
  /** The recommendation to try. */ recommendation_id?: string | null;
  /** The agent; default: you, for admins the busiest. */ agent_id?: string | null;
  /** Settings to try instead of those of a recommendation. */ settings?: ProposedSettings | null;
  /** How many of the agent's last calls to analyse or replay. Default: 50. */ calls?: number;
  /** Answer for this one of the calls only, and list the items it would lose and gain. */ receipt_id?: string | null;
}
export interface AgentCapabilitiesParams {
  /** A topic. operations: your role, what to do first, and the tools of every topic. Default: "operations". */ guidance_type?: "admin" | "agents" | "approvals" | "assembly" | "board" | "branches" | "compaction" | "coordination" | "guardrails" | "history" | "indexing" | "insight" | "knowledge" | "memory" | "messages" | "missing" | "operations" | "records" | "retention" | "search" | "security" | "sessions" | "troubleshooting" | "trust" | "windows";
}
export interface AgentCreateParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** Defaults to the agent_id. */ agent_type?: string | null;
  /** An agent or a human. Default: "agent". */ kind?: "agent" | "human";
  /** The parent: by default you, if you are an agent. An agent with an agent as parent is a sub-agent; otherwise it is an orchestrator. */ parent_id?: string | null;
  /** 1 (lowest) to 5 (highest). Default: 1. */ clearance?: number;
  /** What it may do. Default: ["read", "write"]. */ permissions?: ("admin" | "audit" | "read" | "write")[];
  /** Default minimum relevance of its search results; 0.7 if not set. */ min_score?: number | null;
  /** System prompt of its definition, part of each of its prompts; for agents only. */ instructions?: string | null;
  /** If it exists below the same parent, return it unchanged, without a key. Default: false. */ exist_ok?: boolean;
}
export interface AgentDefineParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** The purpose of the agent. */ role?: string | null;
  /** Its system prompt. */ system_prompt?: string | null;
  /** Rules for the agent and those below it; replaces the whole list. */ guardrails?: Guardrail[] | null;
  /** Your settings, as a JSON object; compaction: how its windows are compacted; alerts: when its calls become an alert; proxy: what the model proxy may change in its calls. */ config?: Record<string, unknown> | null;
  /** Expected version of the definition (0: none yet); VERSION_CONFLICT if it differs. */ if_version?: number | null;
  /** Tell the agent in running sessions to pull this version at once. Default: false. */ critical?: boolean;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface AgentListParams {
  /** Only the members of this session. */ session_id?: string | null;
  /** Return agents after this agent_id; for paging. */ after?: string | null;
  /** At most this many. Default: 100. */ limit?: number;
}
export interface AgentReadDefinitionParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ version?: string | number;
}
export interface AgentUpdateParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** The new full set. */ permissions?: ("admin" | "audit" | "read" | "write")[] | null;
  clearance?: number | null;
  /** True disables it and everything below it at once; false enables it again, with what was disabled with it. */ disabled?: boolean | null;
  /** Default minimum relevance of its search results; 0.7 if not set. */ min_score?: number | null;
  /** Move it, with its memory and everything below it, under this principal; for humans. */ parent_id?: string | null;
}
export interface AlertsAcknowledgeParams {
  /** Id of the alert. */ alert_id: string;
}
export interface AlertsListParams {
  /** Only in this state; active: open and acknowledged. Default: "active". */ state?: "acknowledged" | "active" | "all" | "open" | "resolved";
  /** Only of this condition. */ condition?: "budget.exceeded" | "budget.near" | "context.overload" | "efficiency.low" | "index.damaged" | "quality.dropped" | "quota.near" | null;
  /** Only about this agent. */ agent_id?: string | null;
  /** Only those in this digest: the id of its alert. */ digest_id?: string | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** At most this many. Default: 50. */ limit?: number;
}
export interface AlertsResolveParams {
  /** Id of the alert. */ alert_id: string;
}
export interface ApprovalApproveParams {
  /** Id of the approval. */ approval_id: string;
  /** Why, in a few words; the caller is told. */ reason?: string | null;
}
export interface ApprovalListParams {
  /** Only in this state. */ state?: "approved" | "expired" | "pending" | "performed" | "rejected" | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** At most this many. Default: 20. */ limit?: number;
}
export interface ApprovalRejectParams {
  /** Id of the approval. */ approval_id: string;
  /** Why, in a few words; the caller is told. */ reason?: string | null;
}
export interface ApprovalShowParams {
  /** Id of the approval. */ approval_id: string;
}
export interface AuditListParams {
  /** Rows older than this audit_id; for paging. */ before?: string | null;
  /** Only these. refused: callers without a valid credential or above a rate limit, by address and minute. held: calls that wait for approval. */ outcome?: "denied" | "done" | "held" | "refused" | null;
  /** Only this operation, such as session.delete, or this group, such as session. */ action?: string | null;
  /** Only what this agent or human did. */ agent_id?: string | null;
  /** Only rows about this id of a session, agent, team or domain. */ target?: string | null;
  /** From this time (ISO 8601) or day on. */ since?: string | null;
  /** Up to this time; a date alone is that whole day. */ until?: string | null;
  /** At most this many. Default: 100. */ limit?: number;
}
export interface BoardCheckParams {
  /** The session's id. */ session_id: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
  /** A key not written for this long is stale. Default: 168.0. */ stale_hours?: number;
  /** A key this old that nobody has read is unread. Default: 1.0. */ unread_hours?: number;
}
export interface BoardCompareSnapshotsParams {
  /** The session's id. */ session_id: string;
  /** Label of the snapshot, such as pre_approval. */ from_label: string;
  /** Default: the current board. */ to_label?: string | null;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardDeleteParams {
  /** The session's id. */ session_id: string;
  /** Key of the entry: 1 to 64 of a-z, 0-9 and underscore. */ key: string;
  /** Only if the key is at this version (0: only if it does not exist); otherwise VERSION_CONFLICT. */ if_version?: number | null;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface BoardGuidanceParams {
  /** Use the conventions this session was created with. */ session_id?: string | null;
  /** Or name the conventions yourself. */ conventions?: string | null;
  /** The whole text or one part of it. Default: "all". */ part?: "all" | "conventions" | "reading" | "writing";
}
export interface BoardListKeysParams {
  /** The session's id. */ session_id: string;
  /** Only keys with this prefix. */ prefix?: string | null;
  /** List values, too. Default: false. */ values?: boolean;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardListSnapshotsParams {
  /** The session's id. */ session_id: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardReadParams {
  /** The session's id. */ session_id: string;
  /** Key of the entry: 1 to 64 of a-z, 0-9 and underscore. */ key: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardReadBatchParams {
  /** The session's id. */ session_id: string;
  /** Keys to read. */ keys: string[];
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardReadHistoryParams {
  /** The session's id. */ session_id: string;
  /** Key of the entry: 1 to 64 of a-z, 0-9 and underscore. */ key: string;
  /** Only these versions; default: all that are kept. */ versions?: number[] | null;
  /** A key deleted and created again has several; default: the latest. */ incarnation?: number | null;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardReadSnapshotParams {
  /** The session's id. */ session_id: string;
  /** Label of the snapshot, such as pre_approval. */ label: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardRestoreSnapshotParams {
  /** The session's id. */ session_id: string;
  /** Label of the snapshot, such as pre_approval. */ label: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface BoardSnapshotParams {
  /** The session's id. */ session_id: string;
  /** Label of the snapshot, such as pre_approval. */ label: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface BoardWriteParams {
  /** The session's id. */ session_id: string;
  /** Key of the entry: 1 to 64 of a-z, 0-9 and underscore. */ key: string;
  /** Text, or any other JSON; returned as it was written. */ value: unknown;
  /** Only if the key is at this version (0: only if it does not exist); otherwise VERSION_CONFLICT. */ if_version?: number | null;
  /** Time to live; every write sets it again. */ ttl_seconds?: number | null;
  /** Who may read it; default: unchanged, or everyone for a new key. */ readable_by?: string[] | null;
  /** Who of its readers may change it; default: unchanged, or all of them for a new key. */ writable_by?: string[] | null;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
  /** What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of them. */ derived_from?: string[];
}
export interface BudgetDeleteParams {
  /** Whose budget: tenant, team:NAME or agent:ID. Agents below an agent or a member count for it too. */ subject: string;
  /** Calendar day or month, in UTC. */ period: "day" | "month";
}
export interface BudgetListParams {
  /** Only those that limit this agent; by default you, for admins all budgets. */ agent_id?: string | null;
  /** At most this many. Default: 100. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface BudgetSetParams {
  /** Whose budget: tenant, team:NAME or agent:ID. Agents below an agent or a member count for it too. */ subject: string;
  /** Calendar day or month, in UTC. */ period: "day" | "month";
  /** Limit in tokens: those of prompts, and of answers once they are reported. */ tokens?: number | null;
  /** Limit in US dollars; calls of models without a known price cost nothing. */ cost?: number | null;
  /** At the limit: warn only, downgrade (prompts get fewer passages), or refuse prompts. Default: "warn". */ at_limit?: "downgrade" | "refuse" | "warn";
  /** Part of a limit from which admins and callers are warned. Default: 0.8. */ warn_at?: number;
  /** Part of the limits that one tree may spend: a root agent with all below it; in the budget of an agent, one directly below it, likewise. */ tree_share?: number | null;
  /** Part of the limits that one agent may spend. */ agent_share?: number | null;
}
export interface BundleExportParams {
  /** The session; not needed with scope review. */ session_id?: string | null;
  /** The whole session, or one part of it. Default: "session". */ scope?: "handoff" | "review" | "session" | "task" | "tool_invocation" | "turn";
  /** The turn; required with scope turn. */ turn_id?: string | null;
  /** The task; required with scope task. With scope handoff: only this task. */ task_id?: string | null;
  /** The tool call; required with scope tool_invocation. */ tool_call_id?: string | null;
  /** The review; required with scope review. */ review_id?: string | null;
  /** The receiving agent, by its name there; required with scope handoff. */ recipient?: string | null;
  /** The export policy. Default: your tenant's default policy. */ policy?: string | null;
  /** ndjson and json can be imported; prov is PROV-JSON for provenance tools. Default: "ndjson". */ format?: "json" | "ndjson" | "prov";
  /** Include all versions, events and snapshots, not only the current state. Default: true, except for a handoff. */ history?: boolean | null;
}
export interface BundleImportParams {
  /** The bundle that export_context returned: ndjson or json. */ bundle: string;
  /** The digest from the exporter; a bundle with another digest is rejected. */ expected_digest?: string | null;
  /** Import the session under this id; ids that contain the old one are rewritten. */ session_id?: string | null;
  /** Validate the bundle and return what would be imported, without changes. Default: false. */ dry_run?: boolean;
}
export interface CompactionApplyParams {
  /** Id of a compaction. */ compaction_id: string;
}
export interface CompactionDropParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface CompactionExpandParams {
  /** The session's id. */ session_id: string;
  /** Ids of summaries, key facts or events. */ ids: string[];
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** The compaction of the ids; by default the one in effect. */ compaction_id?: string | null;
  /** Maximum events. Default: 50. */ limit?: number;
  /** Events to skip, oldest first. Default: 0. */ offset?: number;
}
export interface CompactionFactsParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** Only of this kind, such as decision. */ kind?: FactKind | null;
  /** Only with this status: current, superseded or resolved. */ status?: "current" | "resolved" | "superseded" | null;
  /** Maximum facts. Default: 50. */ limit?: number;
  /** Facts to skip, oldest first. Default: 0. */ offset?: number;
}
export interface CompactionListParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** Maximum compactions. Default: 10. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface CompactionShowParams {
  /** Id of a compaction. */ compaction_id: string;
  /** Maximum summaries. Default: 2. */ limit?: number;
  /** Summaries to skip, oldest first. Default: 0. */ offset?: number;
  /** Also the original events, next to their summary. Default: true. */ originals?: boolean;
}
export interface ContextAssembleParams {
  /** The session's id. */ session_id: string;
  /** What the model is to do next. Decides what is relevant, and ends the prompt. */ task_description: string;
  /** Maximum tokens of the prompt, tools included; default: the model's limit. */ token_budget?: number | null;
  /** Agent to assemble for; default: you. */ agent_id?: string | null;
  model?: string | null;
  /** Wire form of the answer's body, and of messages, system and tools. Default: "neutral". */ form?: "anthropic" | "gemini" | "neutral" | "openai_chat" | "openai_responses";
  /** The whole conversation, in this form, instead of ingested events; new messages are stored. */ messages?: unknown[] | null;
  /** System prompt that goes with messages: as your definition has it, registered by those above. */ system?: unknown;
  /** Tool definitions for the model, in this form; auto: the registered tools that fit the task. */ tools?: unknown[] | "auto" | null;
  /** Knowledge only from these domains; an empty list: none. */ domains?: string[] | null;
  /** Minimum score of passages, besides being evidence for the task. */ min_score?: number | null;
  /** Lifetime of the prompt cache, such as 5m or 1h, if the model has a choice. */ cache_ttl?: string | null;
  /** Leave out passages that seem to contain a secret. Default: false. */ omit_secrets?: boolean;
  /** words: also mark every word of texts of others as data; costs many more tokens. Default: "delimit". */ data_marking?: "delimit" | "words";
  /** Choose again from everything instead of appending to the previous prompt. Default: false. */ fresh?: boolean;
}
export interface ContextCompactParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** How; auto chooses by the content and says why. */ strategy?: "auto" | "hierarchical" | "key_facts" | "sliding_window" | "task_scoped" | null;
  /** Part of their tokens that compacted events may take, such as 0.4. */ target?: number | null;
  /** Newest messages to keep in full. */ keep_recent?: number | null;
  /** How long to wait for the result; it is made in any case. Default: 10.0. */ wait_seconds?: number;
}
export interface ContextCopyParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** The agent whose memory to copy. */ from_agent_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ version?: string | number;
  /** Memory types to copy. Default: all. Default: ["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]. */ memory_types?: ("conversation_context" | "learned_knowledge" | "team_preferences" | "work_artifacts")[];
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface ContextEmitMetricsParams {
  /** The session's id. */ session_id: string;
  /** Id of a receipt. */ receipt_id: string;
  /** The usage object of the provider's answer: OpenAI Chat or Responses, Anthropic or Gemini. */ usage: Record<string, unknown>;
  /** Model that answered, if not the receipt's. */ model?: string | null;
  /** Duration of the call. */ latency_ms?: number | null;
  /** Your rating of the answer, 0 to 1. */ quality_score?: number | null;
  /** The provider's id of the answer, to find the prompt by later. */ response_id?: string | null;
  /** The answer, as text or as the provider returns it: tells what of the prompt was used. Not kept */ answer?: unknown;
  /** Calls of tools in the answer, if 'answer' is text: name and arguments of each. */ tool_calls?: Record<string, unknown>[] | null;
}
export interface ContextIngestParams {
  /** The session's id. */ session_id: string;
  /** The events, oldest first. */ events: NewWindowEvent[];
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface ContextPullParams {
  /** The session's id. */ session_id: string;
  /** Your own agent_id. May be omitted. */ agent_id?: string | null;
  /** A branch of your context, or main. Default: the branch you checked out. */ branch?: string | null;
}
export interface ContextPushParams {
  /** Entries to write; existing keys are replaced. */ knowledge: Knowledge[];
  /** Entries to remove. */ remove?: RemovedKey[];
  /** team:NAME or user:ID for memory shared with others. Default: your own. */ owner?: string | null;
  /** Your own agent_id. May be omitted. */ agent_id?: string | null;
  /** Expected version of the context (0: nothing pushed yet); VERSION_CONFLICT if it differs. Default: the version that session_id last pulled or pushed; without one, only new keys are written. */ if_version?: number | null;
  /** The session of the push. */ session_id?: string | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
  /** A branch of your context, or main. Default: the branch you checked out. */ branch?: string | null;
}
export interface ContextReadParams {
  /** team:NAME or user:ID for memory shared with others. Default: your own. */ owner?: string | null;
  /** Read your snapshot there. Default: the current version. */ session_id?: string | null;
  /** Only this memory type. */ memory_type?: "conversation_context" | "learned_knowledge" | "team_preferences" | "work_artifacts" | null;
  /** One entry with its full value. */ key?: string | null;
  /** The workflow; only with the memory type conversation_context. */ workflow_id?: string | null;
  /** Maximum entries. Default: 50. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface ContextStatusParams {
  /** team:NAME or user:ID for memory shared with others. Default: your own. */ owner?: string | null;
  /** Include the versions of this session. */ session_id?: string | null;
  /** Your own agent_id. May be omitted. */ agent_id?: string | null;
  /** A branch of your context, or main. Default: the branch you checked out. */ branch?: string | null;
}
export interface ContextValidatePromptParams {
  /** Id of a receipt. */ receipt_id: string;
  /** The body of the request to the model, in this form. */ body: Record<string, unknown>;
  /** The wire form of the body. Default: "neutral". */ form?: "anthropic" | "gemini" | "neutral" | "openai_chat" | "openai_responses";
}
export interface ConventionsDefineParams {
  /** The domain's name. */ name: string;
  /** The keys, in groups. */ groups: ConventionGroup[];
}
export interface ConventionsListParams {
}
export interface ConversationCallsParams {
  /** The agent; by default yourself. */ agent_id?: string | null;
  /** Only of this session's conversation. */ session_id?: string | null;
  /** Maximum calls. Default: 20. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface ConversationOpenParams {
  /** Handle from the end of a shortened result. */ handle: string;
  /** The agent; by default yourself. */ agent_id?: string | null;
  /** First line to read, from 1; by default all. */ first_line?: number | null;
  /** Last line to read; by default the last one. */ last_line?: number | null;
}
export interface ConversationSettingsParams {
  /** The agent; by default yourself. */ agent_id?: string | null;
}
export interface EntityListParams {
  /** Only of this session; documents are still included. */ session_id?: string | null;
  /** Only of this knowledge domain. */ domain?: string | null;
  /** Only entities of this type. */ type?: "agent" | "date" | "email" | "file" | "identifier" | "person" | "project" | "url" | null;
  /** Only entities whose name contains this text. */ query?: string | null;
  /** Maximum entities. Default: 50. */ limit?: number;
}
export interface EventsReadParams {
  /** Events of this session; by default of all sessions you may see. */ session_id?: string | null;
  /** Only events of these board keys. Default: ["*"]. */ keys?: string[];
  /** Only events of these types. Default: ["*"]. */ types?: string[];
  /** Only events that nobody else may see, such as those of your memory. Default: false. */ personal?: boolean;
  /** Only new messages that are addressed to you. Default: false. */ addressed?: boolean;
  /** Events after this seq; by default only new ones. */ after?: number | null;
  /** How long to wait if there is no event yet. Default: 0.0. */ wait_seconds?: number;
  /** Weftline's own format, or CloudEvents 1.0. Default: "native". */ format?: "cloudevents" | "native";
}
export interface GatewayAddParams {
  /** Name of the server: lower-case letters, digits and '-'. Its tools are called NAME__TOOL. */ name: string;
  command?: string | null; url?: string | null;
  /** Environment of a command, or headers sent to a URL. ${NAME} is read from the environment of Weftline, if the operator allows it; other values are stored encrypted and never shown. */ variables?: Record<string, string>;
  /** Who may see and call its tools; by default everyone. Default: ["*"]. */ agents?: string[];
  /** Tokens from which an answer is shortened to what matters, with a handle to the whole. Default: 4000. */ answer_tokens?: number;
  /** agent: each agent has its own connection, and its own program; tenant: all share one, for a server that keeps nothing between calls. Default: "agent". */ connection?: "agent" | "tenant";
  /** How long the same read-only call of an agent has the same answer; 0: each call is made. Default: 0. */ cache_seconds?: number;
}
export interface GatewayApproveParams {
  /** Name of the server: lower-case letters, digits and '-'. Its tools are called NAME__TOOL. */ name: string;
  /** Tools to approve; by default all that are held. */ tools?: string[];
}
export interface GatewayCallParams {
  /** Name of the tool, as in github__search. */ name: string;
  /** Arguments of the tool. */ arguments?: Record<string, unknown>;
}
export interface GatewayGetParams {
  /** Name of the server: lower-case letters, digits and '-'. Its tools are called NAME__TOOL. */ name: string;
}
export interface GatewayListParams {
}
export interface GatewayRefreshParams {
  /** Name of the server: lower-case letters, digits and '-'. Its tools are called NAME__TOOL. */ name: string;
}
export interface GatewayRemoveParams {
  /** Name of the server: lower-case letters, digits and '-'. Its tools are called NAME__TOOL. */ name: string;
}
export interface GuardrailCheckParams {
  /** Name of an operation or tool, such as board.delete or github.create_issue. */ tool: string;
  /** The arguments of the call. */ arguments?: Record<string, unknown>;
  session_id?: string | null;
  /** The workflow step of the call. */ step?: string | null;
  /** What the call answered, to check rules about answers. */ answer?: unknown;
}
export interface GuardrailListParams {
  /** Rules that hold for this agent; those who may not read layers: yours. */ agent_id?: string | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface GuardrailTestParams {
  /** Name of an operation or tool, such as board.delete or github.create_issue. */ tool: string;
  /** The arguments of the call. */ arguments?: Record<string, unknown>;
  /** Who makes the call; by default you. */ agent_id?: string | null;
  session_id?: string | null;
  /** The workflow step of the call. */ step?: string | null;
  /** What the call answered, to check rules about answers. */ answer?: unknown;
  calls?: SampleCounts | null;
  /** By default those that are found in the values. */ labels?: ("injection" | "pii" | "secret" | "untrusted")[] | null;
  /** Rules that are not defined yet. */ guardrails?: Guardrail[] | null;
}
export interface HistoryBisectParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Only this key. */ key: string;
  /** Text to find in the value (in memory: in its JSON). */ contains: string;
  /** A version without the text. Default: "0". */ from_version?: string | number;
  /** A version with the text. Default: "head". */ to_version?: string | number;
}
export interface HistoryBlameParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ version?: string | number;
  key?: string | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 200. */ limit?: number;
}
export interface HistoryBranchParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Name of the branch, such as try_postgres. */ branch: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ from_version?: string | number;
}
export interface HistoryBranchesParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
}
export interface HistoryClearRetentionParams {
  /** A kind of context, such as board, agent or work_artifacts (the action retention lists them), or a context_id. */ subject: string;
}
export interface HistoryCloseReviewParams {
  /** Id of the review. */ review_id: string;
}
export interface HistoryContextSnapshotsParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 50. */ limit?: number;
}
export interface HistoryDeleteBranchParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Name of the branch, such as try_postgres. */ branch: string;
  /** Delete it even with unmerged changes. Default: false. */ force?: boolean;
}
export interface HistoryDeleteSnapshotParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Label of the snapshot. */ label: string;
}
export interface HistoryDiffParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. */ from_version: string | number;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ to_version?: string | number;
  /** Context of to_version; default: the same context. */ other_context_id?: string | null;
  /** Include a line by line diff of the values. Default: true. */ text?: boolean;
  /** Mark the changed words instead of lines, as [-removed-] and {+added+}. Default: false. */ words?: boolean;
}
export interface HistoryLogParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Only commits that changed this key. */ key?: string | null;
  /** Only commits older than this one; for paging. */ before_version?: string | number | null;
  /** Maximum number of results. Default: 50. */ limit?: number;
}
export interface HistoryMergeParams {
  /** Context that receives the changes. */ context_id: string;
  /** Context whose changes are merged. */ from_context_id: string;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface HistoryPruneParams {
  /** Only this context; default: all. */ context_id?: string | null;
}
export interface HistoryPruneLogParams {
  /** Only of this context. */ context_id?: string | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 50. */ limit?: number;
}
export interface HistoryResolveParams {
  /** Id of the review. */ review_id: string;
  /** One decision for every key in conflict. */ resolutions: Record<string, ConflictResolution>;
  /** Decide only if the review still has this fingerprint. */ fingerprint?: string | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface HistoryRetentionParams {
}
export interface HistoryReviewParams {
  /** Id of the review. */ review_id: string;
}
export interface HistoryReviewsParams {
  /** Only merges into this context. */ context_id?: string | null;
  /** Only in this state. */ state?: "abandoned" | "open" | "resolved" | "superseded" | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 20. */ limit?: number;
}
export interface HistoryRollbackParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. */ target_version: string | number;
  /** Expected current version of the context; VERSION_CONFLICT if it differs. */ if_version?: number | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface HistorySetRetentionParams {
  /** A kind of context, such as board, agent or work_artifacts (the action retention lists them), or a context_id. */ subject: string;
  /** Keep every state of this many days; default: unchanged. */ days?: 30 | 90 | 365 | "indefinite" | null;
  /** Keep this many versions of each key; 0: all; default: unchanged. */ versions?: number | null;
  /** For persistent memory: a push that changes at least this many entries is preceded by an automatic snapshot; 0: never; default: unchanged. */ snapshot_from?: number | null;
}
export interface HistoryShowParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ version: string | number;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 200. */ limit?: number;
}
export interface HistorySnapshotParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Label of the snapshot, such as before_migration. */ label: string;
}
export interface HistorySnapshotsParams {
  /** Only of this context. */ context_id?: string | null;
  /** Only of this agent's definition and persistent memory. */ agent_id?: string | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 50. */ limit?: number;
}
export interface HistoryStateParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Version number (12 or v12; 0 is the empty state), snapshot label, 6 or more digits of the hash, or head. Default: "head". */ version?: string | number;
  key?: string | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 200. */ limit?: number;
}
export interface HistorySwitchParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** The branch; main or omitted: the context itself. */ branch?: string | null;
}
export interface HistoryVerifyParams {
  /** The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch. */ context_id: string;
  /** Also verify the contexts it branched from, its parts, and values in object storage. Default: false. */ deep?: boolean;
}
export interface KeyCreateParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** Seconds until it expires; it does not expire by default. */ expires_in?: number | null;
  /** Tool profile: the tools that MCP clients with this key see listed, such as full or board,messages. Default: the server's setting. */ tools?: string | null;
  /** Step of a task: the key and its tokens may call the tools of this step only. */ step?: string | null;
}
export interface KeyListParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
}
export interface KeyRevokeParams {
  /** The key's id: its second part, after the tenant. */ key_id: string;
}
export interface KeyRotateParams {
  /** The key's id: its second part, after the tenant. */ key_id: string;
}
export interface KnowledgeAddDocumentParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** How long to wait until searches find it; 0: not at all. Default: 0.0. */ wait_seconds?: number;
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
  text?: string | null; content?: string | null; media_type?: string | null;
  /** Title; default: the one found in the document. */ title?: string | null;
  /** Names and values that searches can filter by. */ metadata?: Record<string, string | number | boolean | null> | null;
  /** Included in every search; needs clearance 3 or admin. Default: false. */ pinned?: boolean;
  /** From 0 to 1; default: that of the domain. */ importance?: number | null;
  /** Time it was written; default: now. */ timestamp?: string | null;
}
export interface KnowledgeAddDocumentsParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Documents to add. */ documents: NewDocument[];
  /** How long to wait until searches find it; 0: not at all. Default: 0.0. */ wait_seconds?: number;
}
export interface KnowledgeAddSourceParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** folder: files of a folder on the server; url: the document at a URL; hook: documents in signed calls to the hook. */ kind: "folder" | "hook" | "url";
  /** Folder on the server, inside an allowed one. */ folder?: string | null;
  /** URL of the document: http or https, without credentials. */ url?: string | null;
  /** Prefix of its document ids, such as handbook/. For a URL, the whole id. Default: "". */ prefix?: string;
  /** Files to include, such as *.md or guides/*; default: all. Default: ["*"]. */ include?: string[];
  /** Files to exclude, such as drafts/*. */ exclude?: string[];
  every_seconds?: number | null;
  /** Watch a folder for changes. Default: false. */ watch?: boolean;
  /** Secret that signs hook calls; default: generated. */ secret?: string | null;
}
export interface KnowledgeAllowModelsParams {
  /** Only these models; an empty list allows every configured model. */ models: string[];
}
export interface KnowledgeCancelModelMigrationParams {
}
export interface KnowledgeCreateDomainParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Template to create it from: a name of list_templates, or a whole template. */ template?: string | DomainTemplate | null;
  description?: string | null;
  /** Minimum clearance to see it. Default: 1. */ clearance?: number;
  /** Agents that can see it; for others it does not exist. Default: ["*"]. */ agents?: string[];
  /** Agents that may write, of those that can see it; admins always may. Default: ["*"]. */ writers?: string[];
  chunking?: ChunkingOptions | null;
  /** Default importance of its documents. Default: 0.5. */ importance?: number;
}
export interface KnowledgeDeleteDocumentParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
}
export interface KnowledgeDeleteDomainParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
}
export interface KnowledgeDiscardDocumentParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
  /** The version that was added; a later one is checked again. */ version: number;
}
export interface KnowledgeEmbedParams {
  /** A text; truncated to the model's token limit. */ text?: string | null;
  /** Alternatively, up to 64 texts. */ texts?: string[] | null;
  /** 'query' for search queries, 'passage' for texts to be found. Default: "passage". */ purpose?: "passage" | "query";
  /** A model you may use; default: the one of your searches. */ model?: string | null;
}
export interface KnowledgeEvaluateDomainParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
}
export interface KnowledgeGetDocumentParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
}
export interface KnowledgeListDocumentsParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Only documents in this state. */ state?: "failed" | "indexed" | "pending" | "quarantined" | null;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Maximum number of results. Default: 100. */ limit?: number;
}
export interface KnowledgeListDomainsParams {
}
export interface KnowledgeListModelsParams {
}
export interface KnowledgeListSourcesParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
}
export interface KnowledgeListTemplatesParams {
}
export interface KnowledgeReadDocumentParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
  /** First character. Default: 0. */ start?: number;
  /** End of the range, exclusive; at most 100,000 characters are returned. */ end?: number | null;
  /** Indexed or latest version; default: the indexed one, if there is none the latest. */ version?: number | null;
}
export interface KnowledgeReindexParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Embed all texts again, instead of using cached vectors. Default: false. */ reembed?: boolean;
}
export interface KnowledgeReindexAllParams {
  /** Embed all texts again, instead of using cached vectors. Default: false. */ reembed?: boolean;
}
export interface KnowledgeReleaseDocumentParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the document in its domain: a name or a relative path such as guides/start.md. */ document_id: string;
  /** The version that was added; a later one is checked again. */ version: number;
}
export interface KnowledgeRemoveSourceParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the source. */ source_id: string;
  /** Also remove its documents. Default: false. */ documents?: boolean;
}
export interface KnowledgeShowDomainParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
}
export interface KnowledgeShowModelMigrationParams {
}
export interface KnowledgeShowReindexingParams {
}
export interface KnowledgeShowTemplateParams {
  /** Name of the template. */ name: string;
}
export interface KnowledgeStartModelMigrationParams {
  /** Name of an embedding model, as shown by list_models. */ model: string;
  /** Shares of the queries that the new model answers, step by step, before it answers all. An empty list switches all at once. Default: [0.1, 0.5]. */ shares?: number[];
  /** Refuse the model if, on average, the first ten results agree less. Default: 0.3. */ min_overlap?: number;
  /** How long after the switch it can be rolled back. Default: 24. */ keep_hours?: number;
}
export interface KnowledgeSyncSourceParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the source. */ source_id: string;
  /** Read unchanged files again. Default: false. */ full?: boolean;
}
export interface KnowledgeUpdateDomainParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  description?: string | null; clearance?: number | null; agents?: string[] | null; writers?: string[] | null;
  chunking?: ChunkingOptions | null; importance?: number | null;
}
export interface KnowledgeUpdateSourceParams {
  /** Name of the domain: letters, digits, _ and -. */ domain: string;
  /** Id of the source. */ source_id: string;
  /** False disables it. */ enabled?: boolean | null;
  include?: string[] | null; exclude?: string[] | null;
  /** Interval between syncs, at least 60 seconds; 0: none. */ every_seconds?: number | null;
  watch?: boolean | null;
}
export interface LayerDefineParams {
  /** tenant for the policies of the tenant, team:NAME for the guidelines of a team. */ layer: string;
  /** The text; empty: remove it; omitted: leave it. */ text?: string | null;
  /** Rules about what callers may not do; replaces the whole list. */ guardrails?: Guardrail[] | null;
  /** Trust policy, of the tenant only; replaces all of it. */ policy?: TrustPolicy | null;
  /** When and how windows are compacted; replaces all of it. */ compaction?: CompactionSettings | null;
  /** When calls of agents become an alert; replaces all of it. */ alerts?: AlertSettings | null;
  /** What the model proxy may change in calls of agents; replaces all of it. */ proxy?: ProxySettings | null;
  /** Expected version of the layer (0: none yet); VERSION_CONFLICT if it differs. */ if_version?: number | null;
  /** Tell agents in running sessions to pull this version at once. Default: false. */ critical?: boolean;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface LayerListParams {
  /** Maximum number of layers. Default: 200. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface LayerShowParams {
  /** The agent; by default yourself. */ agent_id?: string | null;
  /** Show the versions of this session; else the current ones. */ session_id?: string | null;
}
export interface MemoryDeleteParams {
  /** The entry's key: 1 to 255 letters, digits and any of _-.:/ , such as billing/limit. */ key: string;
  /** The session of the entry. Default: global memory. */ session_id?: string | null;
  /** Expected version of the key (0: it does not exist); VERSION_CONFLICT if it differs. */ if_version?: number | null;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step it belongs to. */ step?: string | null;
}
export interface MemoryGetParams {
  /** The entry's key: 1 to 255 letters, digits and any of _-.:/ , such as billing/limit. */ key: string;
  /** The session of the entry. Default: global memory. */ session_id?: string | null;
}
export interface MemoryInspectParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** Maximum entries. Default: 50. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface MemoryListParams {
  /** Entries of this session, or "all" for global entries and those of all your sessions. Default: global entries. */ session_id?: string | null;
  /** Only keys with this prefix. */ prefix?: string | null;
  /** With values, up to 4 MiB per page. Default: false. */ values?: boolean;
  /** Maximum entries. Default: 50. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface MemoryOverviewParams {
  /** Your own agent_id. */ agent_id: string;
}
export interface MemorySetParams {
  /** The entry's key: 1 to 255 letters, digits and any of _-.:/ , such as billing/limit. */ key: string;
  /** Any JSON value, including null; returned unchanged. */ value: unknown;
  /** The session of the entry. Default: global memory. */ session_id?: string | null;
  /** Seconds until the entry expires. Default: never. Each write resets it. */ expires_in?: number | null;
  /** Free-form JSON. */ metadata?: Record<string, unknown> | null;
  /** False: KEY_EXISTS if the key exists already. Default: true. */ overwrite?: boolean;
  /** Expected version of the key (0: it does not exist); VERSION_CONFLICT if it differs. */ if_version?: number | null;
  /** What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of them. */ derived_from?: string[];
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step it belongs to. */ step?: string | null;
}
export interface MessageAddParams {
  /** The session's id. */ session_id: string;
  /** The text, stored unchanged; at most 10000 characters. */ content: string;
  /** public: all members; private: you and the recipient, or only you; agent_only: agents of your type; admin_only: admins, who alone may send these. Default: public, or private with a recipient. */ visibility?: "admin_only" | "agent_only" | "private" | "public" | null;
  /** Show it only to the members of this team, of which you are one. */ team?: string | null;
  /** Free-form JSON. */ metadata?: Record<string, unknown> | null;
  /** The message this one replies to. */ parent_message_id?: number | null;
  /** Send it to this member's inbox; only you two see it, unless you set a visibility. */ recipient_id?: string | null;
  /** The kind of message, such as request or result. Default: "message". */ message_type?: string;
  /** Its part in the conversation, such as CONTEXT or DIALOG; SYSTEM is not for sub-agents. Default: "DIALOG". */ category?: string;
  /** What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of them. */ derived_from?: string[];
}
export interface MessageInboxParams {
  /** Only messages of this session; by default of all. */ session_id?: string | null;
  /** Only messages of this agent. */ sender?: string | null;
  /** Handles (SESSION/ID) of messages that you have dealt with; they leave the inbox. */ acknowledge?: string[];
  /** Maximum messages. Default: 20. */ limit?: number;
}
export interface MessageInspectParams {
  /** The session's id. */ session_id: string;
  /** Maximum number of messages. Default: 50. */ limit?: number;
  /** Messages to skip. Default: 0. */ offset?: number;
}
export interface MessageListParams {
  /** The session's id. */ session_id: string;
  /** Maximum number of messages. Default: 50. */ limit?: number;
  /** Messages to skip. Default: 0. */ offset?: number;
  /** Only messages with this visibility. */ visibility_filter?: "admin_only" | "agent_only" | "private" | "public" | null;
  /** Only messages after this id: pass the last one you have seen. Default: 0. */ after_id?: number;
}
export interface MessageSearchParams {
  /** The session's id. */ session_id: string;
  /** Keywords, which may be misspelt, or a question. */ query: string;
  /** Minimum score of a result, 0 to 100. Default: 60.0. */ fuzzy_threshold?: number;
  /** Maximum results. Default: 10. */ limit?: number;
  /** Also search the messages' metadata. Default: true. */ search_metadata?: boolean;
  /** All messages you may read, only public ones, or only your private ones. Default: "all". */ search_scope?: "all" | "private" | "public";
  /** Also record selected and rejected messages, as a selection. Default: false. */ record?: boolean;
}
export interface MessageSearchBySenderParams {
  /** The session's id. */ session_id: string;
  /** agent_id of the sender. */ sender: string;
  /** Maximum messages. Default: 20. */ limit?: number;
  /** Number of newest messages to skip. Default: 0. */ offset?: number;
}
export interface MessageSearchByTimerangeParams {
  /** The session's id. */ session_id: string;
  /** ISO 8601, such as 2025-01-15T10:00:00Z or 2025-01-15T12:00:00+02:00; UTC without an offset; a date means the whole day. */ start_time: string;
  /** ISO 8601, such as 2025-01-15T10:00:00Z or 2025-01-15T12:00:00+02:00; UTC without an offset; a date means the whole day. */ end_time: string;
  /** Maximum messages. Default: 50. */ limit?: number;
  /** Number of oldest messages to skip. Default: 0. */ offset?: number;
}
export interface MessageSetVisibilityParams {
  /** The session's id. */ session_id: string;
  /** The message's id, unique in its session. */ message_id: number;
  /** The new visibility. */ visibility: "admin_only" | "agent_only" | "private" | "public";
}
export interface MissingListParams {
  /** Session to list; default: all sessions you participate in. */ session_id?: string | null;
  /** Status filter; open: detected or requested. Default: "open". */ status?: "all" | "detected" | "open" | "requested" | "resolved";
  /** Minimum severity. Default: "info". */ severity?: "blocking" | "high" | "info" | "low" | "medium";
  /** Only gaps reported in this task. */ task_id?: string | null;
  /** Maximum number of results. Default: 50. */ limit?: number;
  /** next_after of the previous page. */ after?: string | null;
}
export interface MissingReportParams {
  /** The session's id. */ session_id: string;
  /** The missing information, as a question. */ question: string;
  /** How severe the gap is. Default: "medium". */ severity?: "blocking" | "high" | "info" | "low" | "medium";
  /** Unit of work; default: the task of this call, otherwise the session. */ scope?: "custom" | "handoff" | "review" | "session" | "task" | "tool_invocation" | "turn" | null;
  /** What the information is needed for. */ needed_for?: string | null;
  /** Sources that may have the answer. */ candidate_sources?: PossibleSource[];
  /** Actions that are blocked until it is resolved. */ blocked_actions?: string[];
  /** Id of the new record; default: generated. */ missing_id?: string | null;
}
export interface MissingRequestParams {
  /** Id of the missing context. */ missing_id: string;
  /** user_question: writes a key on the board; retrieval: searches the session's messages; peer_task: sends a message to agent_id; tool_invocation: records a request for tool; policy_request: records a request to requested_from. */ form: "peer_task" | "policy_request" | "retrieval" | "tool_invocation" | "user_question";
  /** Peer to ask, for peer_task. */ agent_id?: string | null;
  /** Tool to call, for tool_invocation. */ tool?: string | null;
  /** Who is asked, if the form does not determine it. */ requested_from?: string | null;
  /** Further details, such as arguments. */ detail?: string | null;
  /** Session it belongs to; optional check. */ session_id?: string | null;
}
export interface MissingResolveParams {
  /** Id of the missing context. */ missing_id: string;
  /** References to the answer: ids of items or records, or URIs. */ resolution_refs?: string[];
  /** The answer as text instead; it is written to the session's board. */ answer?: string | null;
  /** Session it belongs to; optional check. */ session_id?: string | null;
}
export interface PerformanceReadParams {
  /** Hours of history to return, one entry each; 0: none. Default: 0. */ history_hours?: number;
}
export interface PinAddParams {
  /** The session of the message, board key or session memory. */ session_id?: string | null;
  /** A message of the session. */ message_id?: number | null;
  /** A key of the session's board. */ key?: string | null;
  /** A key of your memory; with session_id of that session's, if it has the key. With memory_type, a key of your persistent memory. */ memory_key?: string | null;
  /** The memory type of a key of persistent memory. */ memory_type?: "conversation_context" | "learned_knowledge" | "team_preferences" | "work_artifacts" | null;
  /** The workflow; only with the memory type conversation_context. */ workflow_id?: string | null;
  /** team:NAME or user:ID for memory shared with others. Default: your own. */ owner?: string | null;
}
export interface PinListParams {
  /** Pins of this session and of your memory; without it, of your memory only. */ session_id?: string | null;
}
export interface PinRemoveParams {
  /** The session of the message, board key or session memory. */ session_id?: string | null;
  /** A message of the session. */ message_id?: number | null;
  /** A key of the session's board. */ key?: string | null;
  /** A key of your memory; with session_id of that session's, if it has the key. With memory_type, a key of your persistent memory. */ memory_key?: string | null;
  /** The memory type of a key of persistent memory. */ memory_type?: "conversation_context" | "learned_knowledge" | "team_preferences" | "work_artifacts" | null;
  /** The workflow; only with the memory type conversation_context. */ workflow_id?: string | null;
  /** team:NAME or user:ID for memory shared with others. Default: your own. */ owner?: string | null;
}
export interface PlanShowParams {
}
export interface PolicyDeleteParams {
  /** The policy's name. The policy named default applies to exports that name none. */ name: string;
}
export interface PolicyListParams {
}
export interface PolicySetParams {
  /** The policy's name. The policy named default applies to exports that name none. */ name: string;
  definition: PolicyDefinition;
}
export interface ReceiptListParams {
  /** Only of this session. */ session_id?: string | null;
  /** Only of this agent; by default you. */ agent_id?: string | null;
  /** Maximum receipts. Default: 20. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface ReceiptReplayParams {
  /** Id of a receipt. */ receipt_id: string;
  /** The wire form of the body. Default: "neutral". */ form?: "anthropic" | "gemini" | "neutral" | "openai_chat" | "openai_responses";
}
export interface ReceiptSavingsParams {
  /** One row for each; tenant: one row for all. Default: "agent". */ by?: "agent" | "model" | "session" | "tenant";
  /** Only of this session. */ session_id?: string | null;
  /** Only of this agent; by default you. */ agent_id?: string | null;
  /** Only calls from this time on: 2025-01-15 or with a time. */ since?: string | null;
  /** Only calls up to this time, inclusive. */ until?: string | null;
}
export interface ReceiptShowParams {
  /** Id of a receipt. */ receipt_id: string;
  /** Also every candidate with its tokens and score, and what was omitted. Default: true. */ candidates?: boolean;
}
export interface RecordsAddParams {
  /** Agent Context records, identified by their id fields. All are added, or none. */ records: Record<string, unknown>[];
  /** The session they belong to. Without it they are visible to you alone. */ session_id?: string | null;
  /** Who may read them, in addition to you. Default: all members. */ readable_by?: string[] | null;
}
export interface RecordsListParams {
  /** Records of this session. Default: all you may see. */ session_id?: string | null;
  /** Records of this participant, by the name that events show, such as subagent:review, or by an agent's id. */ agent?: string | null;
  /** Records of this turn. */ turn_id?: string | null;
  /** Records of this task. */ task_id?: string | null;
  /** Records of this tool call. */ tool_call_id?: string | null;
  /** This item and the records that reference it. */ item_id?: string | null;
  /** Records known under this id elsewhere: an MCP session, a trace, an A2A task, a model answer, a CloudEvent, or what their external mappings name. */ native_id?: string | null;
  /** Record types. Include context_event to list the events themselves too. */ types?: ("context_assembly" | "context_budget" | "context_compaction" | "context_envelope" | "context_event" | "context_injection" | "context_item" | "context_selection" | "context_source_ref" | "context_summary" | "context_surface" | "context_window" | "missing_context")[];
  /** From this time on (ISO 8601). */ since?: string | null;
  /** Before this time; a date alone is that whole day. */ until?: string | null;
  /** Maximum records. Default: 50. */ limit?: number;
  /** next_after of the previous page, or the seq of an event. */ after?: string | null;
}
export interface RecordsRedactParams {
  /** The record's id, as records.list returns it. */ item_id: string;
  /** masked: secrets and personal data are masked; removed, policy_blocked: no content; summarized: only the replacement; encrypted_ref: only a salted digest; none: not redacted. Only admins may make a redacted item show more. */ state: "encrypted_ref" | "masked" | "none" | "policy_blocked" | "removed" | "summarized";
  /** Why. Visible to admins in the audit log. */ reason: string;
  /** How it was redacted, in a few words. */ method?: string | null;
  /** The text shown instead; required with summarized. */ replacement?: string | null;
  /** Optional check: the record must belong to this session. */ session_id?: string | null;
}
export interface RecordsResolveParams {
  /** Id of a recorded source ref, ref of a search result, or a URI as under against. */ source_id?: string | null;
  /** The source ref itself, instead of source_id. */ source_ref?: Record<string, unknown> | null;
  /** The current text of the source. Not needed for sources that Weftline stores: board://SESSION/KEY (with ?version=N, ?branch=NAME), session://SESSION#message-N, knowledge://DOMAIN/DOCUMENT, item ids. */ against?: string | null;
  /** Media type of that text, such as text/html. Default: detected. */ media_type?: string | null;
  /** Optional check: the record must belong to this session. */ session_id?: string | null;
}
export interface RecordsRevealParams {
  /** The record's id, as records.list returns it. */ item_id: string;
  /** Why. Visible to admins in the audit log. */ reason: string;
  /** Optional check: the record must belong to this session. */ session_id?: string | null;
}
export interface RecordsSchemaParams {
  /** Record type. */ type: "context_assembly" | "context_budget" | "context_compaction" | "context_envelope" | "context_event" | "context_injection" | "context_item" | "context_selection" | "context_source_ref" | "context_summary" | "context_surface" | "context_window" | "missing_context";
}
export interface RecordsSetLifecycleParams {
  /** The record's id, as records.list returns it. */ record_id: string;
  /** The new state. */ lifecycle: "archived" | "assembled" | "available" | "compacted" | "draft" | "expired" | "injected" | "redacted" | "selected";
  /** Optional check: the record must belong to this session. */ session_id?: string | null;
}
export interface RecordsShowParams {
  /** Id of a record, or the ref of a search result. */ record_id: string;
  /** Its type; needed only if records of several types share the id. */ type?: "context_assembly" | "context_budget" | "context_compaction" | "context_envelope" | "context_event" | "context_injection" | "context_item" | "context_selection" | "context_source_ref" | "context_summary" | "context_surface" | "context_window" | "missing_context" | null;
  /** Include an item's content even if it is stored by reference. Default: false. */ with_content?: boolean;
  /** Optional check: the record must belong to this session. */ session_id?: string | null;
}
export interface SchemasGetParams {
  /** The type of record. */ type: "context_envelope" | "context_surface" | "context_item" | "context_source_ref" | "context_selection" | "context_budget" | "context_window" | "context_assembly" | "context_injection" | "context_compaction" | "context_summary" | "missing_context" | "context_event";
}
export interface SchemasListParams {
}
export interface SearchFindSimilarParams {
  /** Only this knowledge domain. */ domain?: string | null;
  /** Only these knowledge domains. */ domains?: string[] | null;
  /** Only this session; documents are still searched. */ session_id?: string | null;
  /** Only these kinds of sources. */ sources?: ("board" | "document" | "event" | "memory" | "message")[] | null;
  /** Only keys that begin with this, of your memory and of the board of session_id. */ prefix?: string | null;
  /** Only the memory of this owner: your own agent_id, team:NAME or user:NAME. */ owner?: string | null;
  /** Only items from this time on: 2025-01-15 or 2025-01-15T10:00:00Z. */ since?: string | null;
  /** Only items up to this time; a date such as 2025-01-15 includes that day. */ until?: string | null;
  /** Only documents whose metadata contain all of these values. */ metadata?: Record<string, string | number | boolean | null> | null;
  /** Only documents of these media types, such as text/markdown. */ types?: string[] | null;
  /** Only items that mention all of these, such as ada or file:src/app.py. */ entities?: string[] | null;
  ref?: string | null;
  /** Alternatively, a text. */ text?: string | null;
  /** Maximum results; pinned items come in addition. Default: 10. */ top_k?: number;
  /** Minimum score, which is a cosine similarity. Default: 0.0. */ min_score?: number;
  /** Add signals and source refs to results, and what was searched, how and how long. Default: false. */ explain?: boolean;
}
export interface SearchGetContextParams {
  /** Only this knowledge domain. */ domain?: string | null;
  /** Only these knowledge domains. */ domains?: string[] | null;
  /** Only this session; documents are still searched. */ session_id?: string | null;
  /** Only these kinds of sources. */ sources?: ("board" | "document" | "event" | "memory" | "message")[] | null;
  /** Only keys that begin with this, of your memory and of the board of session_id. */ prefix?: string | null;
  /** Only the memory of this owner: your own agent_id, team:NAME or user:NAME. */ owner?: string | null;
  /** Only items from this time on: 2025-01-15 or 2025-01-15T10:00:00Z. */ since?: string | null;
  /** Only items up to this time; a date such as 2025-01-15 includes that day. */ until?: string | null;
  /** Only documents whose metadata contain all of these values. */ metadata?: Record<string, string | number | boolean | null> | null;
  /** Only documents of these media types, such as text/markdown. */ types?: string[] | null;
  /** Only items that mention all of these, such as ada or file:src/app.py. */ entities?: string[] | null;
  /** Minimum score of a result, 0 to 1; default: the agent's, or 0.7. */ min_score?: number | null;
  /** Weight of recency in the ranking. Default: 0.02. */ recency_weight?: number;
  /** Days after which recency halves. Default: 30.0. */ half_life_days?: number;
  /** Weight of importance in the ranking. Default: 0.15. */ importance_weight?: number;
  query?: string | null;
  /** Alternatively, the ref of a search result: returns its surroundings. */ ref?: string | null;
  /** Token budget of the whole answer with its citations. Default: 2000. */ max_tokens?: number;
  /** How tokens are counted; exact tokenizers need the weftline[tokenizers] extra. Default: "approximate". */ tokenizer?: "approximate" | "cl100k_base" | "o200k_base";
  /** Add signals and source refs to results, and what was searched, how and how long. Default: false. */ explain?: boolean;
  /** Also record what was selected, in session_id if given; needs write. Default: false. */ record?: boolean;
}
export interface SearchQueryParams {
  /** Only this knowledge domain. */ domain?: string | null;
  /** Only these knowledge domains. */ domains?: string[] | null;
  /** Only this session; documents are still searched. */ session_id?: string | null;
  /** Only these kinds of sources. */ sources?: ("board" | "document" | "event" | "memory" | "message")[] | null;
  /** Only keys that begin with this, of your memory and of the board of session_id. */ prefix?: string | null;
  /** Only the memory of this owner: your own agent_id, team:NAME or user:NAME. */ owner?: string | null;
  /** Only items from this time on: 2025-01-15 or 2025-01-15T10:00:00Z. */ since?: string | null;
  /** Only items up to this time; a date such as 2025-01-15 includes that day. */ until?: string | null;
  /** Only documents whose metadata contain all of these values. */ metadata?: Record<string, string | number | boolean | null> | null;
  /** Only documents of these media types, such as text/markdown. */ types?: string[] | null;
  /** Only items that mention all of these, such as ada or file:src/app.py. */ entities?: string[] | null;
  /** Minimum score of a result, 0 to 1; default: the agent's, or 0.7. */ min_score?: number | null;
  /** Weight of recency in the ranking. Default: 0.02. */ recency_weight?: number;
  /** Days after which recency halves. Default: 30.0. */ half_life_days?: number;
  /** Weight of importance in the ranking. Default: 0.15. */ importance_weight?: number;
  /** A question or keywords. */ query: string;
  /** Maximum results; pinned items come in addition. Default: 10. */ top_k?: number;
  /** Also return results below min_score, and top_k results of an unsure search. Default: false. */ low_confidence?: boolean;
  /** Add signals and source refs to results, and what was searched, how and how long. Default: false. */ explain?: boolean;
  /** Also record what was selected, in session_id if given; needs write. Default: false. */ record?: boolean;
}
export interface SessionAddMembersParams {
  /** The session's id. */ session_id: string;
  /** Entries of the list of members. */ members: string[];
}
export interface SessionArchiveParams {
  /** The session's id. */ session_id: string;
}
export interface SessionCreateParams {
  /** What the session is for. */ purpose: string;
  /** Free-form JSON. */ metadata?: Record<string, unknown> | null;
  /** A custom id (letters, digits, _ and -); generated by default. */ session_id?: string | null;
  /** Limits and options; defaults otherwise. */ config?: SessionConfig | null;
  /** Who may see the session besides you: by default the agents below you; [] for nobody, ["*"] for everyone in the tenant. */ members?: string[] | null;
  /** If you are a member of a session with this id, return that one unchanged. Default: false. */ exist_ok?: boolean;
}
export interface SessionDeleteParams {
  /** The session's id. */ session_id: string;
  /** Delete it even if others depend on it. Default: false. */ force?: boolean;
}
export interface SessionGetParams {
  /** The session's id. */ session_id: string;
}
export interface SessionInspectParams {
  /** The session's id. */ session_id: string;
  /** A branch of the board, or main; default: the one you switched to, or main. */ branch?: string | null;
}
export interface SessionListParams {
  /** At most this many. Default: 50. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
  /** Include archived sessions. Default: false. */ include_archived?: boolean;
}
export interface SessionOverviewParams {
  /** The session's id. */ session_id: string;
}
export interface SessionReinstateParams {
  /** The session's id. */ session_id: string;
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
}
export interface SessionRemoveMembersParams {
  /** The session's id. */ session_id: string;
  /** Entries of the list of members. */ members: string[];
}
export interface SigningKeyRotateParams {
  /** Also revoke every existing token, instead of letting them expire. Default: false. */ revoke_existing?: boolean;
}
export interface StepDefineParams {
  /** Name of the step. */ name: string;
  /** Tools of Weftline, whole or as TOOL.ACTION, and registered tools. */ tools: string[];
  /** What is done in this step, in one line. Default: "". */ description?: string;
  /** tree: for you and the agents below you. tenant: for everyone; only humans with clearance 3, whose default it is. */ shared_with?: "tenant" | "tree" | null;
}
export interface StepListParams {
}
export interface StepRemoveParams {
  /** Name of the step. */ name: string;
  /** tree: for you and the agents below you. tenant: for everyone; only humans with clearance 3, whose default it is. */ shared_with?: "tenant" | "tree" | null;
}
export interface TeamAddMemberParams {
  /** The team's name: letters, digits, underscores and dashes. */ team: string;
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
}
export interface TeamCreateParams {
  /** The team's name: letters, digits, underscores and dashes. */ team: string;
  /** What the team does, in one line. Default: "". */ description?: string;
}
export interface TeamDeleteParams {
  /** The team's name: letters, digits, underscores and dashes. */ team: string;
  /** Also if it still has memory or guidelines. Default: false. */ force?: boolean;
}
export interface TeamListParams {
  /** Return teams after this one; for paging. */ after?: string | null;
  /** At most this many. Default: 100. */ limit?: number;
}
export interface TeamRemoveMemberParams {
  /** The team's name: letters, digits, underscores and dashes. */ team: string;
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
}
export interface TeamShowParams {
  /** The team's name: letters, digits, underscores and dashes. */ team: string;
}
export interface TeamUpdateParams {
  /** The team's name: letters, digits, underscores and dashes. */ team: string;
  /** What the team does, in one line. */ description: string;
}
export interface TokenIssueParams {
  /** Letters, digits, underscores and dashes; unique in the tenant. */ agent_id: string;
  /** The type of agent, such as claude, gemini or custom. */ agent_type: string;
  /** The agent's API key. */ api_key: string;
  /** Permissions to request; the token gets those that were granted to the agent. Default: ["read", "write"]. */ requested_permissions?: ("admin" | "audit" | "read" | "write")[];
  /** Step of a task: the token may call the tools of this step only. */ step?: string | null;
  /** The token can only be refreshed, once and within five minutes: for a link that signs in. Default: false. */ single_use?: boolean;
}
export interface TokenRefreshParams {
}
export interface TokenRevokeParams {
  /** The token's jti claim. */ token_id?: string | null;
  /** Revoke all tokens of this principal, such as your own, instead of one. */ agent_id?: string | null;
  /** Also revoke the tokens it was refreshed from, and those refreshed from it. Default: false. */ refreshed?: boolean;
}
export interface ToolsDescribeParams {
  /** Name of a tool, or TOOL.ACTION for one of its actions. */ name: string;
  /** As for a connection that is bound to a session: without session_id. */ session_id?: string | null;
  /** Return the schema of the answer as well. Default: false. */ output_schema?: boolean;
}
export interface ToolsListParams {
  /** Return tools after this name; for paging. */ after?: string | null;
  /** At most this many. Default: 100. */ limit?: number;
}
export interface ToolsRegisterParams {
  /** Up to 100 tools. */ tools: ToolDraft[];
  /** MCP server or program that they come from. Default: "". */ server?: string;
  /** These are all tools of the server: remove its others that you registered. Default: false. */ complete?: boolean;
  /** tree: for you and the agents below you. tenant: for everyone; only humans with clearance 3, whose default it is. */ shared_with?: "tenant" | "tree" | null;
}
export interface ToolsRemoveParams {
  /** Letters, digits, '_', '-', '.' and '/', as models call it. */ name: string;
  /** tree: for you and the agents below you. tenant: for everyone; only humans with clearance 3, whose default it is. */ shared_with?: "tenant" | "tree" | null;
}
export interface ToolsSearchParams {
  /** What you want to do, in your own words. */ query: string;
  /** Maximum number of tools. Default: 5. */ limit?: number;
}
export interface ToolsSelectParams {
  /** What the model is to do next. */ task_description: string;
  /** Session that the task belongs to. */ session_id?: string | null;
  /** Tools to load in any case, such as one of those named before. */ include?: string[];
  /** Choose among the tools of Weftline as well. Default: false. */ own_tools?: boolean;
}
export interface TrustForgetParams {
  /** An item id with or without version, such as board:SESSION/KEY, message:SESSION/NUMBER, knowledge://DOMAIN/DOCUMENT; or tool:NAME, url:ADDRESS. */ item: string;
  /** Why. Recorded in history and audit log. */ reason: string;
  /** delete: the source, its copies and what declares it; flag: label them suspicious. Default: "delete". */ mode?: "delete" | "flag";
  /** What was written after a prompt with the source in it: label it suspicious or not. Default: "flag". */ possible?: "flag" | "keep";
  /** With delete: also remove the text from old versions, stored prompts and records. Default: true. */ erase?: boolean;
  /** Follow derivations this many steps. Default: 5. */ steps?: number;
  /** Only show what would be done. Default: true. */ dry_run?: boolean;
}
export interface TrustTraceParams {
  /** An item id with or without version, such as board:SESSION/KEY, message:SESSION/NUMBER, knowledge://DOMAIN/DOCUMENT; or tool:NAME, url:ADDRESS. */ item: string;
  /** Follow derivations this many steps. Default: 5. */ steps?: number;
  /** Also what was written after a prompt that contained it. Default: true. */ possible?: boolean;
  /** Maximum items. Default: 100. */ limit?: number;
}
export interface UsageExportParams {
  /** Only calls from this time on: 2025-01-15 or with a time. */ since?: string | null;
  /** Only calls up to this time, inclusive. */ until?: string | null;
  /** Only of this agent; by default you with the agents below you. */ agent_id?: string | null;
  /** Only of agents that were in this team. */ team?: string | null;
  /** Only of this session. */ session_id?: string | null;
  /** Only of this model. */ model?: string | null;
  /** assembly: calls with an assembled prompt; compaction: calls of Weftline's own model; proxy: calls through the model proxy. */ kind?: "assembly" | "compaction" | "proxy" | null;
  /** Interval of the rows, in UTC. Default: "day". */ unit?: "day" | "hour";
  /** csv with a header, or json: one object a line. Default: "csv". */ form?: "csv" | "json";
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface UsageReportParams {
  /** Only calls from this time on: 2025-01-15 or with a time. */ since?: string | null;
  /** Only calls up to this time, inclusive. */ until?: string | null;
  /** Only of this agent; by default you with the agents below you. */ agent_id?: string | null;
  /** Only of agents that were in this team. */ team?: string | null;
  /** Only of this session. */ session_id?: string | null;
  /** Only of this model. */ model?: string | null;
  /** assembly: calls with an assembled prompt; compaction: calls of Weftline's own model; proxy: calls through the model proxy. */ kind?: "assembly" | "compaction" | "proxy" | null;
  /** One row for each; tenant: one row for all. Days and hours are in UTC. Default: "agent". */ by?: "agent" | "day" | "hour" | "kind" | "minute" | "model" | "session" | "step" | "team" | "tenant";
  /** At most this many rows. Default: 100. */ limit?: number;
}
export interface WebhookCreateParams {
  /** Where to send events: http or https, without credentials in it. */ url: string;
  /** Types of events to send. Default: ["*"]. */ types?: string[];
  /** Only events of this session; by default of all. */ session_id?: string | null;
  /** What it is for. Default: "". */ description?: string;
  secret?: string | null;
}
export interface WebhookDeleteParams {
  /** The webhook's id. */ webhook_id: string;
}
export interface WebhookDeliveriesParams {
  /** The webhook's id. */ webhook_id: string;
  /** Pending ones or dead letters; by default both. */ state?: "dead" | "pending" | null;
  /** Deliveries of events after this seq; for paging. Default: 0. */ after?: number;
  /** At most this many. Default: 100. */ limit?: number;
}
export interface WebhookListParams {
}
export interface WebhookReplayParams {
  /** The webhook's id. */ webhook_id: string;
  /** Dead letters of these events. */ seqs?: number[];
  /** All dead letters. Default: false. */ dead?: boolean;
  /** Every event from this seq on, including delivered ones. */ from_seq?: number | null;
}
export interface WebhookTestParams {
  /** The webhook's id. */ webhook_id: string;
}
export interface WebhookUpdateParams {
  /** The webhook's id. */ webhook_id: string;
  /** True resumes it where it stopped; false stops it. */ enabled: boolean;
}
export interface WindowBranchParams {
  /** The session's id. */ session_id: string;
  /** Label of the checkpoint, such as before_migration. */ label: string;
  /** Name of the branch, such as try_postgres. */ branch: string;
  /** Only this agent's window; all you may open by default. */ agent_id?: string | null;
  /** Let the agents work on the branch from now on. Default: false. */ switch?: boolean;
}
export interface WindowCheckpointParams {
  /** The session's id. */ session_id: string;
  /** Label of the checkpoint, such as before_migration. */ label: string;
  /** Only this agent's window; all you may open by default. */ agent_id?: string | null;
}
export interface WindowCheckpointsParams {
  /** The session's id. */ session_id: string;
  /** Only this agent's window; all you may open by default. */ agent_id?: string | null;
  /** Include those that Weftline made. Default: true. */ include_automatic?: boolean;
}
export interface WindowCreateParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** The model that reads the window. */ model?: string | null;
  /** Context of the model in tokens; by default that of the model in the catalog. */ model_max_tokens?: number | null;
  /** Clamp the window to this many tokens, whatever its model can hold. */ shared_cw_max_tokens?: number | null;
  /** Tokens kept free for the model's answer. */ reserved_tokens?: number | null;
  /** Shares of the window by category, such as DIALOG: 0.5; the others divide the rest. */ budgets?: Record<string, number> | null;
  /** Part of the limit from which the window should be compacted; 0.8 by default. */ compaction_threshold?: number | null;
  /** Make automatic checkpoints; true by default. */ autosave?: boolean | null;
}
export interface WindowDeleteParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowEventsParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** Maximum number of events. Default: 50. */ limit?: number;
  /** Events to skip, oldest first. Default: 0. */ offset?: number;
}
export interface WindowJoinParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window to share. */ with_agent_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowLeaveParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowListParams {
  /** The session's id. */ session_id: string;
  /** Maximum number of windows. Default: 50. */ limit?: number;
  /** next_cursor of the previous page. */ cursor?: string | null;
}
export interface WindowPopParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowRefreshParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowReleaseParams {
  /** The session's id. */ session_id: string;
  /** The held events. */ event_ids: string[];
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowRestoreParams {
  /** The session's id. */ session_id: string;
  /** Label of the checkpoint, such as before_migration. */ label: string;
  /** The agent whose window to restore; default: yours. */ agent_id?: string | null;
  /** Restore this agent's checkpoint into the window of agent_id, or into yours. */ from_agent_id?: string | null;
  /** Restore all windows that have the checkpoint and that you may open. Default: false. */ all_agents?: boolean;
  /** Why, in a few words; shown in the log. */ reason?: string | null;
  /** The workflow step this belongs to; a new step first takes a snapshot. */ step?: string | null;
}
export interface WindowRouteParams {
  /** The session's id. */ session_id: string;
  /** What to route. */ categories: Category[];
  /** Agents that see it. */ to_agents?: string[];
  /** Roles: all agents of these types see it. */ to_types?: string[];
  /** Teams of yours whose members see it. */ to_teams?: string[];
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowShowParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowUnrouteParams {
  /** The session's id. */ session_id: string;
  /** What to route. */ categories: Category[];
  /** Agents that see it. */ to_agents?: string[];
  /** Roles: all agents of these types see it. */ to_types?: string[];
  /** Teams of yours whose members see it. */ to_teams?: string[];
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
}
export interface WindowUpdateParams {
  /** The session's id. */ session_id: string;
  /** The agent whose window; yourself by default, or an agent below you. */ agent_id?: string | null;
  /** The model that reads the window. */ model?: string | null;
  /** Context of the model in tokens; by default that of the model in the catalog. */ model_max_tokens?: number | null;
  /** Clamp the window to this many tokens, whatever its model can hold. */ shared_cw_max_tokens?: number | null;
  /** Tokens kept free for the model's answer. */ reserved_tokens?: number | null;
  /** Shares of the window by category, such as DIALOG: 0.5; the others divide the rest. */ budgets?: Record<string, number> | null;
  /** Part of the limit from which the window should be compacted; 0.8 by default. */ compaction_threshold?: number | null;
  /** Make automatic checkpoints; true by default. */ autosave?: boolean | null;
}
/** Every operation, by group. */
export interface Operations {
  advise: {
    /**
     * List what would make prompts smaller or cheaper, with what the last calls would have saved.
     *
     * Each recommendation was tried by planning these calls again: compaction, shares of the window, models, tools never
     * called, documents, pins and board keys that no answer uses, copies, outdated context.
     *
     * Errors: QUOTA_EXCEEDED.
     */
    list(params?: AdviseListParams, options?: CallOptions): Promise<AdviceList>;
    /**
     * Show a recommendation: its evidence, what it would have saved, and the command that makes the change.
     *
     * Errors: RECOMMENDATION_NOT_FOUND, QUOTA_EXCEEDED.
     */
    show(params: AdviseShowParams, options?: CallOptions): Promise<AdviceShown>;
    /**
     * Try a recommendation, or settings of your own, on the last calls before anything is switched.
     *
     * The calls are planned again by the planner that made them, from their receipts: tokens, money, cache, and which
     * items that the answers used are kept or lost. The assumptions of the trial say what is not replayed.
     *
     * Errors: RECEIPT_NOT_FOUND, RECOMMENDATION_NOT_FOUND, QUOTA_EXCEEDED.
     */
    try(params?: AdviseTryParams, options?: CallOptions): Promise<AdviceTried>;
  };
  agent: {
    /** Get your role, what to do first and the topics of guidance, or one topic: its operations and advice. */
    capabilities(params?: AgentCapabilitiesParams, options?: CallOptions): Promise<UsageGuidance>;
    /**
     * Create an agent or a human, with an API key that is shown only once. For admins and orchestrators.
     *
     * An agent whose parent is an agent is a sub-agent and writes as `subagent:{type}` (or `subagent:{type}:{id}` if
     * its id differs from its type); any other agent is an orchestrator and writes as `orchestrator:{id}`. You cannot
     * grant more than you have, and an agent can create only its own descendants: below itself, or below an agent that is
     * below it. If you are in a step of a task, its key is bound to the same step.
     *
     * Errors: AGENT_EXISTS, QUOTA_EXCEEDED.
     */
    create(params: AgentCreateParams, options?: CallOptions): Promise<AgentCreated>;
    /**
     * Set the definition of an agent: role, system prompt, guardrails and configuration.
     *
     * For its parent agents, and for humans with clearance 3 or higher and at least that of the agent; never for itself.
     * A running session keeps the definition it pulled until it pulls again; guardrails hold from the next call.
     *
     * Errors: AGENT_NOT_FOUND, QUOTA_EXCEEDED, VERSION_CONFLICT.
     */
    define(params: AgentDefineParams, options?: CallOptions): Promise<AgentDefined>;
    /**
     * List the agents and humans you may address: the members of a session, or your tree and your teams.
     *
     * Your tree: those above and below you, and those with the same parent. Admins see the whole tenant.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params?: AgentListParams, options?: CallOptions): Promise<AgentList>;
    /**
     * Read a version of the definition of an agent: your own, or that of an agent you may edit.
     *
     * Errors: AGENT_NOT_FOUND, VERSION_NOT_FOUND, VERSION_PRUNED.
     */
    read_definition(params: AgentReadDefinitionParams, options?: CallOptions): Promise<DefinitionRead>;
    /**
     * Change a principal's permissions or clearance, disable or move it. Takes effect on its next call.
     *
     * Disabling it disables everything below it; enabling it enables exactly that again. Human admins may change
     * principals up to their own clearance, orchestrators only their descendants. Nobody can change itself or grant more
     * than it has.
     *
     * Errors: AGENT_NOT_FOUND, QUOTA_EXCEEDED.
     */
    update(params: AgentUpdateParams, options?: CallOptions): Promise<AgentUpdated>;
  };
  alerts: {
    /**
     * Acknowledge an alert: you look into it. It stays active until it is resolved.
     *
     * Errors: ALERT_NOT_FOUND, ALERT_RESOLVED.
     */
    acknowledge(params: AlertsAcknowledgeParams, options?: CallOptions): Promise<AlertInfo>;
    /**
     * List alerts: about you and the agents below you; for admins all. Those of many agents are one, a digest.
     *
     * Errors: QUOTA_EXCEEDED.
     */
    list(params?: AlertsListParams, options?: CallOptions): Promise<AlertList>;
    /**
     * Resolve an alert; a digest with all alerts in it. Only later calls of the agent open it again.
     *
     * Errors: ALERT_NOT_FOUND, ALERT_RESOLVED.
     */
    resolve(params: AlertsResolveParams, options?: CallOptions): Promise<AlertInfo>;
  };
  approval: {
    /**
     * Approve a held call: it is performed once, as its caller, past the check that held it.
     *
     * Errors: APPROVAL_NOT_FOUND, APPROVAL_CLOSED.
     */
    approve(params: ApprovalApproveParams, options?: CallOptions): Promise<ApprovalDecided>;
    /** List calls that wait for approval or were decided: all for approvers, otherwise your own. */
    list(params?: ApprovalListParams, options?: CallOptions): Promise<ApprovalList>;
    /**
     * Reject a held call: it is never performed, and its caller is told.
     *
     * Errors: APPROVAL_NOT_FOUND, APPROVAL_CLOSED.
     */
    reject(params: ApprovalRejectParams, options?: CallOptions): Promise<ApprovalDecided>;
    /**
     * Show a held call with its request; its caller also sees the answer. Views of others are audited.
     *
     * Errors: APPROVAL_NOT_FOUND.
     */
    show(params: ApprovalShowParams, options?: CallOptions): Promise<ApprovalShown>;
  };
  audit: {
    /**
     * Read the tenant's audit log: every denial, every refused credential and administrative change, newest first.
     *
     * Rows about knowledge domains that you may not read show only who did what, and when.
     */
    list(params?: AuditListParams, options?: CallOptions): Promise<AuditLog>;
  };
  board: {
    /**
     * Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND.
     */
    check(params: BoardCheckParams, options?: CallOptions): Promise<BoardCheck>;
    /**
     * Compare two snapshots, or a snapshot with the current board.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND.
     */
    compare_snapshots(params: BoardCompareSnapshotsParams, options?: CallOptions): Promise<Comparison>;
    /**
     * Delete an entry that is no longer relevant.
     *
     * Errors: BRANCH_NOT_FOUND, KEY_NOT_FOUND, SESSION_NOT_FOUND, SESSION_ARCHIVED, VERSION_CONFLICT.
     */
    delete(params: BoardDeleteParams, options?: CallOptions): Promise<EntryDeleted>;
    /**
     * Get the text for an agent's system prompt that explains how to use the board.
     *
     * Errors: CONVENTIONS_NOT_FOUND, SESSION_NOT_FOUND.
     */
    guidance(params?: BoardGuidanceParams, options?: CallOptions): Promise<Guidance>;
    /**
     * List the keys of the board with sizes, to choose what to read; with `values`, read them at once.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, VERSION_PRUNED.
     */
    list_keys(params: BoardListKeysParams, options?: CallOptions): Promise<Keys>;
    /**
     * List the board's snapshots.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND.
     */
    list_snapshots(params: BoardListSnapshotsParams, options?: CallOptions): Promise<Snapshots>;
    /**
     * Read one entry.
     *
     * Errors: BRANCH_NOT_FOUND, KEY_NOT_FOUND, SESSION_NOT_FOUND, VERSION_PRUNED.
     */
    read(params: BoardReadParams, options?: CallOptions): Promise<EntryRead>;
    /**
     * Read several entries from one consistent state in one call.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, VERSION_PRUNED.
     */
    read_batch(params: BoardReadBatchParams, options?: CallOptions): Promise<EntriesRead>;
    /**
     * Read the earlier versions of a key: values, authors and times.
     *
     * Errors: BRANCH_NOT_FOUND, KEY_NOT_FOUND, SESSION_NOT_FOUND.
     */
    read_history(params: BoardReadHistoryParams, options?: CallOptions): Promise<KeyHistory>;
    /**
     * Read the board as of a snapshot.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND.
     */
    read_snapshot(params: BoardReadSnapshotParams, options?: CallOptions): Promise<SnapshotRead>;
    /**
     * Return the whole board to a snapshot. Needs clearance 3.
     *
     * History is not rewritten: the restore adds new versions, and the state before it gets an automatic snapshot.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND, PIN_LIMIT, QUOTA_EXCEEDED, SESSION_ARCHIVED, STORE_FULL, VERSION_PRUNED.
     */
    restore_snapshot(params: BoardRestoreSnapshotParams, options?: CallOptions): Promise<SnapshotRestored>;
    /**
     * Name the current state of the whole board, to read, compare or restore it later.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED, SNAPSHOT_EXISTS.
     */
    snapshot(params: BoardSnapshotParams, options?: CallOptions): Promise<SnapshotInfo>;
    /**
     * Create or overwrite one entry: conclusions and state that others need, not raw data.
     *
     * The last write wins unless `if_version` names the version to replace.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, PIN_LIMIT, SESSION_ARCHIVED, STORE_FULL, VERSION_CONFLICT.
     */
    write(params: BoardWriteParams, options?: CallOptions): Promise<EntryWritten>;
  };
  budget: {
    /**
     * Delete a budget with what was spent of it. For admins.
     *
     * Errors: AGENT_NOT_FOUND, BUDGET_NOT_FOUND, TEAM_NOT_FOUND.
     */
    delete(params: BudgetDeleteParams, options?: CallOptions): Promise<BudgetDeleted>;
    /**
     * List the budgets that limit you, or an agent below you, with what is spent; as an admin, all.
     *
     * Errors: AGENT_NOT_FOUND.
     */
    list(params?: BudgetListParams, options?: CallOptions): Promise<BudgetList>;
    /**
     * Limit what a tenant, a team or an agent spends in a day or month. For admins.
     *
     * What was already spent in the period counts, also if the budget is new. With shares, one tree of agents or one agent
     * cannot spend what is for all: at its share, what `at_limit` says happens to it alone.
     *
     * Errors: AGENT_NOT_FOUND, TEAM_NOT_FOUND.
     */
    set(params: BudgetSetParams, options?: CallOptions): Promise<BudgetInfo>;
  };
  bundle: {
    /**
     * Export a session, turn, task, tool call, review or handoff as one bundle of records.
     *
     * It contains what you may read and the export policy allows. The export itself is recorded. Another Weftline imports
     * the bundle with `weftline import`, under the same ids. Up to 1 MiB; stream larger exports with `weftline
     * export`.
     *
     * Errors: REVIEW_NOT_FOUND, SESSION_NOT_FOUND.
     */
    export(params?: BundleExportParams, options?: CallOptions): Promise<ContextExported>;
    /**
     * Import a bundle that this or another Weftline exported: all of it, or nothing.
     *
     * A session is restored with its id, all board versions, messages and events, under the names of their authors; this
     * is why only admins may import. An altered bundle is rejected with the line of the first change. If the session id
     * is taken, such as by an earlier handoff, pass another `session_id`.
     *
     * Errors: QUOTA_EXCEEDED, RECORD_EXISTS, SESSION_EXISTS.
     */
    import(params: BundleImportParams, options?: CallOptions): Promise<ContextImported>;
  };
  compaction: {
    /**
     * Apply a compaction that is held for review. It is applied when its review is approved, or by an approver.
     *
     * Errors: COMPACTION_NOT_FOUND, COMPACTION_NOT_HELD, SESSION_ARCHIVED.
     */
    apply(params: CompactionApplyParams, options?: CallOptions): Promise<CompactionInfo>;
    /**
     * Return to the original events of a window. Compact it again to undo this.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED.
     */
    drop(params: CompactionDropParams, options?: CallOptions): Promise<CompactionDropped>;
    /**
     * Read the original events of summaries or key facts, such as when a summary lacks a detail that you need.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, COMPACTION_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND.
     */
    expand(params: CompactionExpandParams, options?: CallOptions): Promise<CompactionExpanded>;
    /**
     * List the key facts of a window with their sources: decisions, constraints, open questions, names and numbers.
     *
     * A later decision supersedes an earlier one. Facts of events since the last compaction are included.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND.
     */
    facts(params: CompactionFactsParams, options?: CallOptions): Promise<FactList>;
    /**
     * List the compactions of a window, newest first: state, strategy, tokens before and after, facts.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND.
     */
    list(params: CompactionListParams, options?: CallOptions): Promise<CompactionList>;
    /**
     * Show a compaction: each summary next to its original events, what was dropped and why, and the key facts.
     *
     * One that is held for review is also open to the humans who may approve it. Their views are audited.
     *
     * Errors: COMPACTION_NOT_FOUND.
     */
    show(params: CompactionShowParams, options?: CallOptions): Promise<CompactionShown>;
  };
  context: {
    /**
     * Assemble the prompt for your next model call: the smallest that carries everything that matters for the task.
     *
     * Layers, pins, your conversation, relevant passages, the board and open questions, within the token budget, ordered
     * so that provider caches hit. The receipt says what was left out and why, and can show the prompt again.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, DOMAIN_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, BUDGET_EXCEEDED, EVENT_EXISTS, QUOTA_EXCEEDED, SESSION_ARCHIVED, WINDOW_CHANGED, WINDOW_TOO_SMALL.
     */
    assemble(params: ContextAssembleParams, options?: CallOptions): Promise<PromptAssembled>;
    /**
     * Compact your window: prompts get summaries and key facts in place of older events, which stay in history.
     *
     * Every decision, constraint, open question, number and name is checked to be in the result, or kept next to it.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, COMPACTION_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED.
     */
    compact(params: ContextCompactParams, options?: CallOptions): Promise<ContextCompacted>;
    /**
     * Replace an agent's persistent memory by a version of another agent's. Definitions are not copied.
     *
     * Needs clearance 4 and the right to edit both agents. The replaced version is tagged, so that it can be restored.
     *
     * Errors: AGENT_NOT_FOUND, OBJECT_MISSING, VERSION_NOT_FOUND, CONTEXT_LIMIT_EXCEEDED, OBJECT_BUSY, PIN_LIMIT, VERSION_PRUNED.
     */
    copy(params: ContextCopyParams, options?: CallOptions): Promise<ContextCopied>;
    /**
     * Report a model call: the provider's usage, and the answer, to learn how much of the prompt was used.
     *
     * Errors: RECEIPT_NOT_FOUND, SESSION_NOT_FOUND, USAGE_CONFLICT.
     */
    emit_metrics(params: ContextEmitMetricsParams, options?: CallOptions): Promise<MetricsEmitted>;
    /**
     * Add events of your conversation to your window: messages, tool calls and their results, workflow events.
     *
     * Idempotent by event_id: sending an event again changes nothing. The window is made with its first event. System
     * text comes from your definition: your own system events are refused, or data if you add others with them.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, EVENT_EXISTS, QUOTA_EXCEEDED, SESSION_ARCHIVED.
     */
    ingest(params: ContextIngestParams, options?: CallOptions): Promise<Ingested>;
    /**
     * Pin your latest context, your teams' memory and the layers in a session as an immutable snapshot.
     *
     * The answer lists what changed since the previous snapshot. Prompts and searches of the session use this one,
     * whatever is pushed or edited, until you pull again.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND, SESSION_ARCHIVED, VERSION_PRUNED.
     */
    pull(params: ContextPullParams, options?: CallOptions): Promise<ContextPulled>;
    /**
     * Write entries to your persistent memory, or to that of a team or user: all of them, or none.
     *
     * If the context has changed since the expected version, nothing is written and the error lists the changes: pull,
     * merge, push again. A session has the new entries after its next pull. A push cannot change your definition (role,
     * system prompt, guardrails, clearance).
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, OBJECT_MISSING, SESSION_NOT_FOUND, TEAM_NOT_FOUND, CONTEXT_LIMIT_EXCEEDED, OBJECT_BUSY, PIN_LIMIT, QUOTA_EXCEEDED, VERSION_CONFLICT.
     */
    push(params: ContextPushParams, options?: CallOptions): Promise<ContextPushed>;
    /**
     * Read your persistent memory: its current version or, with a session, your snapshot there.
     *
     * With owner, the memory of a team or user instead. With a key, the answer has that entry with its full value, even
     * if it is in object storage.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, CONTEXT_KEY_NOT_FOUND, OBJECT_MISSING, SESSION_NOT_FOUND, TEAM_NOT_FOUND, CONTEXT_NOT_PULLED, VERSION_PRUNED.
     */
    read(params?: ContextReadParams, options?: CallOptions): Promise<ContextRead>;
    /**
     * Return the current version of your context, or of a team or user, and the one that your session has.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, SESSION_NOT_FOUND, TEAM_NOT_FOUND.
     */
    status(params?: ContextStatusParams, options?: CallOptions): Promise<ContextStatus>;
    /**
     * Check a prompt right before you send it to the model: it must be the assembled one.
     *
     * Layers present, in order, unaltered and still those of the session; texts of others unchanged and marked; nothing
     * in the system prompt but the layers and what those above the agent wrote; no other tools; no attack in turns and
     * fields added. If not, the call fails and must not be sent.
     *
     * Errors: RECEIPT_NOT_FOUND, PROMPT_OUTDATED, RECEIPT_PRUNED.
     */
    validate_prompt(params: ContextValidatePromptParams, options?: CallOptions): Promise<PromptValidated>;
  };
  conventions: {
    /** Define the keys a domain's agents agree on; sessions name them in their config. */
    define(params: ConventionsDefineParams, options?: CallOptions): Promise<ConventionsDefined>;
    /** List the key conventions that sessions can name. */
    list(params?: ConventionsListParams, options?: CallOptions): Promise<ConventionNames>;
  };
  conversation: {
    /**
     * List the receipts of calls through the model proxy, the latest first: tokens, cost, and net savings.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    calls(params?: ConversationCallsParams, options?: CallOptions): Promise<ProxiedCallList>;
    /**
     * Read the whole text of a result that the model proxy or the gateway shortened, or some lines of it.
     *
     * Errors: OUTPUT_NOT_FOUND.
     */
    open(params: ConversationOpenParams, options?: CallOptions): Promise<OutputOpened>;
    /**
     * Show what the model proxy may change in calls of an agent: of its definition, its teams and the tenant.
     *
     * Set it with the configuration `proxy` of an agent, or the field `proxy` of a layer.
     */
    settings(params?: ConversationSettingsParams, options?: CallOptions): Promise<ProxySettingsShown>;
  };
  entity: {
    /**
     * List people, agents, projects, files, identifiers, dates, URLs and e-mail addresses in what you may see.
     *
     * Counted over the newest 1,000 passages with entities, or over all that mention an entity named exactly by query.
     *
     * Errors: DOMAIN_NOT_FOUND, SESSION_NOT_FOUND.
     */
    list(params?: EntityListParams, options?: CallOptions): Promise<EntityListing>;
  };
  events: {
    /**
     * Read events from an offset, waiting for the next one if there is none yet.
     *
     * Events are ordered and none is lost: repeat the call with `after` set to the `next_after` of the last answer.
     * If `after` is older than the log's retention, `pruned_through` says which events are missing.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    read(params?: EventsReadParams, options?: CallOptions): Promise<Events>;
  };
  gateway: {
    /**
     * Put an MCP server behind Weftline: agents find and call its tools as NAME__TOOL.
     *
     * The server is started or called to ask for its tools. Adding it approves them as they are now, except those whose
     * description looks like an attack; tools that it adds or changes later are held until `gateway.approve`.
     *
     * Errors: GATEWAY_SERVER_EXISTS, QUOTA_EXCEEDED, TOOL_NAME_TAKEN.
     */
    add(params: GatewayAddParams, options?: CallOptions): Promise<ServerInfo>;
    /**
     * Approve the held tools of a server as they are now.
     *
     * A quarantined tool is approved only by its name, and the call is held for a human, who sees what was detected.
     *
     * Errors: GATEWAY_SERVER_NOT_FOUND, GATEWAY_TOOL_NOT_FOUND.
     */
    approve(params: GatewayApproveParams, options?: CallOptions): Promise<ServerInfo>;
    /**
     * Call a tool of an MCP server of the gateway. MCP clients call it by its name, as in github__search.
     *
     * Errors: GATEWAY_TOOL_NOT_FOUND.
     */
    call(params: GatewayCallParams, options?: CallOptions): Promise<ToolCalled>;
    /**
     * Show an MCP server with its tools: which are approved, held or quarantined, and why.
     *
     * Errors: GATEWAY_SERVER_NOT_FOUND.
     */
    get(params: GatewayGetParams, options?: CallOptions): Promise<ServerInfo>;
    /** List the MCP servers of the gateway, with the number of their tools by state. */
    list(params?: GatewayListParams, options?: CallOptions): Promise<ServerList>;
    /**
     * Ask a server for its tools now. New and changed ones are held until `gateway.approve`.
     *
     * Errors: GATEWAY_SERVER_NOT_FOUND.
     */
    refresh(params: GatewayRefreshParams, options?: CallOptions): Promise<ServerInfo>;
    /**
     * Remove a server with its tools and its secrets.
     *
     * Errors: GATEWAY_SERVER_NOT_FOUND.
     */
    remove(params: GatewayRemoveParams, options?: CallOptions): Promise<Success>;
  };
  guardrail: {
    /**
     * Check a call of a tool that is not Weftline's before you make it, or with its answer; an error prohibits it.
     *
     * For runtimes: the rules of your layers, and the step you are in, hold for your other tools too, such as github.*.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    check(params: GuardrailCheckParams, options?: CallOptions): Promise<GuardrailsChecked>;
    /**
     * List the guardrails that hold for you or an agent you may edit; those who read layers: of all layers.
     *
     * Those of agents are listed with agent_id. Hits are counted within seconds.
     *
     * Errors: AGENT_NOT_FOUND.
     */
    list(params?: GuardrailListParams, options?: CallOptions): Promise<GuardrailList>;
    /**
     * Test guardrails against a sample call: which of them it violates, and what would happen. Nothing is changed.
     *
     * For clearance 3 and for admins. Give guardrails to test rules before you define them.
     *
     * Errors: AGENT_NOT_FOUND, SESSION_NOT_FOUND.
     */
    test(params: GuardrailTestParams, options?: CallOptions): Promise<GuardrailsTested>;
  };
  history: {
    /**
     * Find the first version in which a key contains a text, by binary search up to to_version.
     *
     * to_version must contain the text, and every version after the first must too. For context:AGENT, name an entry
     * PART/KEY.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, OBJECT_MISSING, VERSION_NOT_FOUND, VERSION_PRUNED.
     */
    bisect(params: HistoryBisectParams, options?: CallOptions): Promise<Bisected>;
    /**
     * Show who last changed each entry as of a version, when, why and in which workflow step.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, VERSION_NOT_FOUND.
     */
    blame(params: HistoryBlameParams, options?: CallOptions): Promise<Blamed>;
    /**
     * Start a branch from any version of a context, to try something without changing the context itself.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, TEAM_NOT_FOUND, VERSION_NOT_FOUND, BRANCH_EXISTS, BRANCH_LIMIT, HISTORY_NOT_KEPT, SESSION_ARCHIVED.
     */
    branch(params: HistoryBranchParams, options?: CallOptions): Promise<BranchInfo>;
    /**
     * List the branches of a context, including branches of branches.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    branches(params: HistoryBranchesParams, options?: CallOptions): Promise<Branches>;
    /**
     * Delete a rule, so that a context follows its kind again, and a kind the default.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    clear_retention(params: HistoryClearRetentionParams, options?: CallOptions): Promise<RetentionCleared>;
    /**
     * Close a review without merging. Both contexts stay as they are.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, REVIEW_NOT_FOUND, TEAM_NOT_FOUND, HISTORY_NOT_KEPT, REVIEW_CLOSED, SESSION_ARCHIVED.
     */
    close_review(params: HistoryCloseReviewParams, options?: CallOptions): Promise<ReviewDropped>;
    /**
     * List the snapshots of one context, newest first.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    context_snapshots(params: HistoryContextSnapshotsParams, options?: CallOptions): Promise<SnapshotList>;
    /**
     * Delete a branch. Merged changes stay where they were merged.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, TEAM_NOT_FOUND, BRANCH_IN_USE, BRANCH_NOT_MERGED, HISTORY_NOT_KEPT, SESSION_ARCHIVED.
     */
    delete_branch(params: HistoryDeleteBranchParams, options?: CallOptions): Promise<BranchDeleted>;
    /**
     * Delete a snapshot, so that retention may remove values only it needs. Needs clearance 3.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, SNAPSHOT_NOT_FOUND, TEAM_NOT_FOUND, HISTORY_NOT_KEPT, SESSION_ARCHIVED.
     */
    delete_snapshot(params: HistoryDeleteSnapshotParams, options?: CallOptions): Promise<SnapshotDeleted>;
    /**
     * Compare two versions: added, removed and modified entries, with a diff of their values.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, VERSION_NOT_FOUND.
     */
    diff(params: HistoryDiffParams, options?: CallOptions): Promise<Differences>;
    /**
     * Read the commits of a context, newest first: author, time, reason and changed keys.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, VERSION_NOT_FOUND.
     */
    log(params: HistoryLogParams, options?: CallOptions): Promise<Log>;
    /**
     * Merge the changes of another context into this one. If both changed the same keys, a human decides.
     *
     * Works in both directions: a branch into its context, and the context into its branch.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, TEAM_NOT_FOUND, CONTEXT_LIMIT_EXCEEDED, HISTORY_NOT_KEPT, PIN_LIMIT, SESSION_ARCHIVED, STORE_FULL, UNRELATED_CONTEXTS, VERSION_PRUNED.
     */
    merge(params: HistoryMergeParams, options?: CallOptions): Promise<Merged>;
    /**
     * Apply retention now instead of waiting for the daily run.
     *
     * Values that a snapshot, a branch or a session needs are never removed, and the log keeps every version.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    prune(params?: HistoryPruneParams, options?: CallOptions): Promise<HistoryPruned>;
    /**
     * Read what retention removed, newest first.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    prune_log(params?: HistoryPruneLogParams, options?: CallOptions): Promise<PruneLog>;
    /**
     * Resolve a merge key by key. Only humans may, and only for the current values of both sides.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, REVIEW_NOT_FOUND, TEAM_NOT_FOUND, CONTEXT_LIMIT_EXCEEDED, HISTORY_NOT_KEPT, PIN_LIMIT, REVIEW_CLOSED, SESSION_ARCHIVED, STORE_FULL, VERSION_CONFLICT, VERSION_PRUNED.
     */
    resolve(params: HistoryResolveParams, options?: CallOptions): Promise<ReviewResolved>;
    /** List the retention rules. */
    retention(params?: HistoryRetentionParams, options?: CallOptions): Promise<RetentionRuleList>;
    /**
     * Read one merge review, with the value on each side.
     *
     * Errors: REVIEW_NOT_FOUND.
     */
    review(params: HistoryReviewParams, options?: CallOptions): Promise<ReviewInfo>;
    /**
     * List merges that wait for a human or were decided, with the value on each side.
     *
     * A sub-agent names the context of its session.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    reviews(params?: HistoryReviewsParams, options?: CallOptions): Promise<Reviews>;
    /**
     * Return a context to an earlier version. History is not rewritten: the rollback is a new version.
     *
     * Needs clearance 3, 4 for persistent memory, 5 for the tenant's layer. With `rollback_by_tree` in the tenant's
     * policy, an agent may roll back the memory and the definition of agents below it with any clearance that is not
     * below theirs.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, TEAM_NOT_FOUND, VERSION_NOT_FOUND, CONTEXT_LIMIT_EXCEEDED, HISTORY_NOT_KEPT, PIN_LIMIT, QUOTA_EXCEEDED, SESSION_ARCHIVED, STORE_FULL, VERSION_CONFLICT, VERSION_PRUNED.
     */
    rollback(params: HistoryRollbackParams, options?: CallOptions): Promise<RolledBack>;
    /**
     * Set how long old versions of a context, or of a kind of context, are kept. Omitted limits stay unchanged.
     *
     * Errors: CONTEXT_NOT_FOUND, QUOTA_EXCEEDED.
     */
    set_retention(params: HistorySetRetentionParams, options?: CallOptions): Promise<RetentionRule>;
    /**
     * Show one commit: its changes and its parent.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, VERSION_NOT_FOUND.
     */
    show(params: HistoryShowParams, options?: CallOptions): Promise<CommitShown>;
    /**
     * Name the current version of a context, to compare with it or to roll back to it. Needs clearance 3.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, TEAM_NOT_FOUND, HISTORY_NOT_KEPT, QUOTA_EXCEEDED, SESSION_ARCHIVED, SNAPSHOT_EXISTS.
     */
    snapshot(params: HistorySnapshotParams, options?: CallOptions): Promise<SnapshotTaken>;
    /**
     * List the snapshots of every context you may read, newest first; a sub-agent names those of its session.
     *
     * Errors: CONTEXT_NOT_FOUND.
     */
    snapshots(params?: HistorySnapshotsParams, options?: CallOptions): Promise<SnapshotList>;
    /**
     * Read the state of a context at any version. For context:AGENT, these are its entries as PART/KEY.
     *
     * Values in object storage, and those that do not fit in the response, are returned only if you name the key.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND, OBJECT_MISSING, VERSION_NOT_FOUND.
     */
    state(params: HistoryStateParams, options?: CallOptions): Promise<ContextState>;
    /**
     * Switch to a branch. Affects only your own calls that do not name a branch.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND.
     */
    switch(params: HistorySwitchParams, options?: CallOptions): Promise<Switched>;
    /**
     * Recompute every hash of a context, to prove that nothing was altered since it was written.
     *
     * Errors: BRANCH_NOT_FOUND, CONTEXT_NOT_FOUND.
     */
    verify(params: HistoryVerifyParams, options?: CallOptions): Promise<Verified>;
  };
  key: {
    /**
     * Create another API key for a principal that you may change. It is shown only once.
     *
     * Errors: AGENT_NOT_FOUND, STEP_NOT_FOUND.
     */
    create(params: KeyCreateParams, options?: CallOptions): Promise<ApiKeyCreated>;
    /**
     * List a principal's API keys, without their secrets.
     *
     * Errors: AGENT_NOT_FOUND.
     */
    list(params: KeyListParams, options?: CallOptions): Promise<ApiKeyList>;
    /**
     * Revoke an API key, and every token issued for it, at once.
     *
     * Errors: API_KEY_NOT_FOUND.
     */
    revoke(params: KeyRevokeParams, options?: CallOptions): Promise<Success>;
    /**
     * Replace an API key. The new one is shown only once; the old one and its tokens are revoked at once.
     *
     * You may rotate your own keys and, as an admin or orchestrator, those of principals that you may change.
     *
     * Errors: API_KEY_NOT_FOUND.
     */
    rotate(params: KeyRotateParams, options?: CallOptions): Promise<ApiKeyCreated>;
  };
  knowledge: {
    /**
     * Add a document to a domain, or replace the one with the same id.
     *
     * It is chunked, embedded and indexed in the background; until then searches find the previous version. With
     * wait_seconds the call ends when it is indexed, and `state` says so.
     *
     * Errors: DOMAIN_NOT_FOUND, PIN_LIMIT, QUOTA_EXCEEDED.
     */
    add_document(params: KnowledgeAddDocumentParams, options?: CallOptions): Promise<DocumentPut>;
    /**
     * Add a batch of documents to a domain, atomically: all of them or none.
     *
     * Errors: DOMAIN_NOT_FOUND, PIN_LIMIT, QUOTA_EXCEEDED.
     */
    add_documents(params: KnowledgeAddDocumentsParams, options?: CallOptions): Promise<DocumentsPut>;
    /**
     * Add a source to a domain: a folder, a URL or a hook, whose documents are kept in sync.
     *
     * Errors: DOMAIN_NOT_FOUND, SOURCES_OVERLAP, TOO_MANY_SOURCES.
     */
    add_source(params: KnowledgeAddSourceParams, options?: CallOptions): Promise<SourceAdded>;
    /**
     * Restrict which embedding models the tenant may use; an empty list lifts the restriction.
     *
     * Errors: EMBEDDING_MODEL_UNKNOWN.
     */
    allow_models(params: KnowledgeAllowModelsParams, options?: CallOptions): Promise<ModelList>;
    /**
     * Cancel the model migration, or roll it back after the switch: searches use the old model, at once.
     *
     * Errors: MODEL_MIGRATION_NOT_FOUND.
     */
    cancel_model_migration(params?: KnowledgeCancelModelMigrationParams, options?: CallOptions): Promise<ModelMigrationInfo>;
    /**
     * Create a domain: a set of documents with common access rules, searched together.
     *
     * Needs the highest clearance, since name conflicts and quotas reveal the existence of other domains.
     *
     * Errors: TEMPLATE_NOT_FOUND, DOMAIN_EXISTS, QUOTA_EXCEEDED.
     */
    create_domain(params: KnowledgeCreateDomainParams, options?: CallOptions): Promise<DomainInfo>;
    /**
     * Delete a document. Searches no longer find it.
     *
     * Errors: DOCUMENT_NOT_FOUND, DOMAIN_NOT_FOUND.
     */
    delete_document(params: KnowledgeDeleteDocumentParams, options?: CallOptions): Promise<DocumentDeleted>;
    /**
     * Delete a domain permanently, with its documents and chunks.
     *
     * Errors: DOMAIN_NOT_FOUND.
     */
    delete_domain(params: KnowledgeDeleteDomainParams, options?: CallOptions): Promise<DomainDeleted>;
    /**
     * Discard a document that is in quarantine: that version only, if searches find an earlier one.
     *
     * Errors: DOCUMENT_NOT_FOUND, DOMAIN_NOT_FOUND, DOCUMENT_NOT_QUARANTINED.
     */
    discard_document(params: KnowledgeDiscardDocumentParams, options?: CallOptions): Promise<DocumentDiscarded>;
    /**
     * Embed texts: vectors of texts with similar meaning are close to each other.
     *
     * Errors: EMBEDDING_MODEL_UNKNOWN.
     */
    embed(params?: KnowledgeEmbedParams, options?: CallOptions): Promise<EmbeddedTexts>;
    /**
     * Search a domain for the example questions of its template: which of them find their evidence, at which rank.
     *
     * Weftline does this by itself once documents are indexed; show_domain has the latest result.
     *
     * Errors: DOMAIN_NOT_FOUND, DOMAIN_WITHOUT_TEMPLATE.
     */
    evaluate_domain(params: KnowledgeEvaluateDomainParams, options?: CallOptions): Promise<EvaluationInfo>;
    /**
     * Show a document: its state, versions and chunks, and the error if indexing failed.
     *
     * Errors: DOCUMENT_NOT_FOUND, DOMAIN_NOT_FOUND.
     */
    get_document(params: KnowledgeGetDocumentParams, options?: CallOptions): Promise<DocumentInfo>;
    /**
     * List the documents of a domain, by id, with their indexing state.
     *
     * Errors: DOMAIN_NOT_FOUND.
     */
    list_documents(params: KnowledgeListDocumentsParams, options?: CallOptions): Promise<DocumentList>;
    /** List the domains you can see, with their documents and indexing progress. */
    list_domains(params?: KnowledgeListDomainsParams, options?: CallOptions): Promise<DomainList>;
    /** List the embedding models that you may use, and which one searches use. */
    list_models(params?: KnowledgeListModelsParams, options?: CallOptions): Promise<ModelList>;
    /**
     * List the sources of a domain, with the result of the last sync.
     *
     * Errors: DOMAIN_NOT_FOUND.
     */
    list_sources(params: KnowledgeListSourcesParams, options?: CallOptions): Promise<SourceList>;
    /** List the templates for domains that come with Weftline. */
    list_templates(params?: KnowledgeListTemplatesParams, options?: CallOptions): Promise<TemplateList>;
    /**
     * Read the text of a document, or a range of it, such as the range of a search result.
     *
     * A version that is not indexed, or not yet, can be read too. It is checked first, like before indexing.
     *
     * Errors: DOCUMENT_NOT_FOUND, DOCUMENT_VERSION_NOT_FOUND, DOMAIN_NOT_FOUND, DOCUMENT_NOT_READY.
     */
    read_document(params: KnowledgeReadDocumentParams, options?: CallOptions): Promise<DocumentText>;
    /**
     * Parse, chunk and index all documents of a domain again, in the background; searches continue to work.
     *
     * show_domain shows the progress. Unchanged chunks are not embedded again, unless `reembed` is set.
     *
     * Errors: DOMAIN_NOT_FOUND.
     */
    reindex(params: KnowledgeReindexParams, options?: CallOptions): Promise<DomainInfo>;
    /**
     * Reindex everything searchable: documents, messages, boards and memories.
     *
     * Runs in the background, in batches; show_reindexing returns the progress. Everything stays searchable meanwhile.
     */
    reindex_all(params?: KnowledgeReindexAllParams, options?: CallOptions): Promise<ReindexStatus>;
    /**
     * Release a document from quarantine, after you have read the passages for which it is held.
     *
     * It is indexed as it is. Called by an agent, it asks a human.
     *
     * Errors: DOCUMENT_NOT_FOUND, DOMAIN_NOT_FOUND, DOCUMENT_NOT_QUARANTINED.
     */
    release_document(params: KnowledgeReleaseDocumentParams, options?: CallOptions): Promise<DocumentPut>;
    /**
     * Remove a source. Its documents stay, unless `documents` is set.
     *
     * Errors: DOMAIN_NOT_FOUND, SOURCE_NOT_FOUND.
     */
    remove_source(params: KnowledgeRemoveSourceParams, options?: CallOptions): Promise<SourceRemoved>;
    /**
     * Show a domain: description, access rules, indexing progress, and the evaluation of its example questions.
     *
     * Errors: DOMAIN_NOT_FOUND.
     */
    show_domain(params: KnowledgeShowDomainParams, options?: CallOptions): Promise<DomainDetails>;
    /**
     * Show the progress of the latest model migration, and how the two models compare.
     *
     * Errors: MODEL_MIGRATION_NOT_FOUND.
     */
    show_model_migration(params?: KnowledgeShowModelMigrationParams, options?: CallOptions): Promise<ModelMigrationInfo>;
    /** Show what is being reindexed, and how much of it is left. */
    show_reindexing(params?: KnowledgeShowReindexingParams, options?: CallOptions): Promise<ReindexStatus>;
    /**
     * Show a template: chunking, metadata fields, pinned documents, retention and example questions.
     *
     * Errors: TEMPLATE_NOT_FOUND.
     */
    show_template(params: KnowledgeShowTemplateParams, options?: CallOptions): Promise<TemplateInfo>;
    /**
     * Migrate searches to another embedding model: both are kept until the new one is on par.
     *
     * Then the new one answers a growing share of the queries, and at last all. If its answers differ too much, the
     * migration is refused and the old one answers all queries again.
     *
     * Errors: EMBEDDING_MODEL_UNKNOWN, MODEL_IN_USE, MODEL_MIGRATION_IN_PROGRESS, QUOTA_EXCEEDED.
     */
    start_model_migration(params: KnowledgeStartModelMigrationParams, options?: CallOptions): Promise<ModelMigrationInfo>;
    /**
     * Sync a source now. Only changed files are read and indexed, unless `full` is set.
     *
     * Errors: DOMAIN_NOT_FOUND, SOURCE_NOT_FOUND.
     */
    sync_source(params: KnowledgeSyncSourceParams, options?: CallOptions): Promise<SyncRequested>;
    /**
     * Update a domain. Access rules take effect at once, also for searches.
     *
     * A change of chunking or importance reindexes all documents in the background; until a document is done, searches
     * find its previous chunks.
     *
     * Errors: DOMAIN_NOT_FOUND.
     */
    update_domain(params: KnowledgeUpdateDomainParams, options?: CallOptions): Promise<DomainInfo>;
    /**
     * Change the schedule or the files of a source, or enable or disable it.
     *
     * Errors: DOMAIN_NOT_FOUND, SOURCE_NOT_FOUND.
     */
    update_source(params: KnowledgeUpdateSourceParams, options?: CallOptions): Promise<SourceInfo>;
  };
  layer: {
    /**
     * Set the policies of the tenant or the guidelines of a team, which begin the prompts of all their agents.
     *
     * For humans only: clearance 5 for the tenant; clearance 3 for a team, as a member or admin. Running sessions keep
     * their version of the text until a pull; everything else holds from the next call.
     *
     * Errors: TEAM_NOT_FOUND, QUOTA_EXCEEDED, VERSION_CONFLICT.
     */
    define(params: LayerDefineParams, options?: CallOptions): Promise<LayerDefined>;
    /** List the layers of the tenant and of your teams, without their texts. For clearance 3 and for admins. */
    list(params?: LayerListParams, options?: CallOptions): Promise<LayerList>;
    /**
     * Show the layers that begin your prompts, or those of an agent you may edit: level, version, hash and text.
     *
     * Guidelines of teams that you may not see are left out.
     *
     * Errors: AGENT_NOT_FOUND, SESSION_NOT_FOUND.
     */
    show(params?: LayerShowParams, options?: CallOptions): Promise<LayersShown>;
  };
  memory: {
    /**
     * Delete an entry of your private memory.
     *
     * Errors: MEMORY_NOT_FOUND, SESSION_NOT_FOUND, SESSION_ARCHIVED, VERSION_CONFLICT.
     */
    delete(params: MemoryDeleteParams, options?: CallOptions): Promise<MemoryDeleted>;
    /**
     * Read an entry of your private memory.
     *
     * Errors: MEMORY_NOT_FOUND, SESSION_NOT_FOUND.
     */
    get(params: MemoryGetParams, options?: CallOptions): Promise<MemoryFound>;
    /**
     * Read an agent's private memory with values, page by page.
     *
     * For admins only, up to their own clearance; every use is written to the audit log.
     *
     * Errors: AGENT_NOT_FOUND.
     */
    inspect(params: MemoryInspectParams, options?: CallOptions): Promise<MemoryInspected>;
    /**
     * List your private memory with sizes, and with values if you ask for them.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params?: MemoryListParams, options?: CallOptions): Promise<MemoryListed>;
    /** Return your whole memory with values and totals. */
    overview(params: MemoryOverviewParams, options?: CallOptions): Promise<MemoryOverview>;
    /**
     * Store a value in your private memory: globally, or for one session.
     *
     * Only you can read it. The last write wins, unless you pass `if_version` or `overwrite`.
     *
     * Errors: SESSION_NOT_FOUND, KEY_EXISTS, MEMORY_LIMIT_EXCEEDED, PIN_LIMIT, SESSION_ARCHIVED, VERSION_CONFLICT.
     */
    set(params: MemorySetParams, options?: CallOptions): Promise<MemorySet>;
  };
  message: {
    /**
     * Add a message to a session: for all members, one of them, agents of your type, a team, or only yourself.
     *
     * Reply to a message with `parent_message_id`. A reply to a direct message goes to its other side only.
     *
     * Errors: MESSAGE_NOT_FOUND, RECIPIENT_NOT_FOUND, SESSION_NOT_FOUND, TEAM_NOT_FOUND, PIN_LIMIT, SESSION_ARCHIVED.
     */
    add(params: MessageAddParams, options?: CallOptions): Promise<MessageAdded>;
    /**
     * Read the messages addressed to you, oldest first, from all your sessions; acknowledge earlier ones.
     *
     * A message stays until you pass its handle in `acknowledge`, so nothing is lost if you stop between reading and
     * acting. If there are more than `limit`, the senders take turns.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    inbox(params?: MessageInboxParams, options?: CallOptions): Promise<InboxPage>;
    /**
     * Read every message of a session, whatever its visibility. For admins; every use is audited.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    inspect(params: MessageInspectParams, options?: CallOptions): Promise<Messages>;
    /**
     * Read the messages of a session that you may see, oldest first.
     *
     * Pages are stable while others write, because new messages come last. To poll, pass `after_id`. A page is shorter
     * than `limit` if it would exceed about 4 MiB; `has_more` is then true.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params: MessageListParams, options?: CallOptions): Promise<Messages>;
    /**
     * Search the messages of one session by keywords, which may be misspelt, or with a question.
     *
     * A score of 100 means that the message matches the whole query, or matches terms that no other message has. To search
     * by meaning, and in documents, boards and memory too, use search.
     *
     * Errors: SESSION_NOT_FOUND, SESSION_ARCHIVED.
     */
    search(params: MessageSearchParams, options?: CallOptions): Promise<MessageSearchResponse>;
    /**
     * List the messages of one sender in a session that you may read, newest first.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    search_by_sender(params: MessageSearchBySenderParams, options?: CallOptions): Promise<MessagesBySender>;
    /**
     * List the messages of a time range in a session that you may read, oldest first.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    search_by_timerange(params: MessageSearchByTimerangeParams, options?: CallOptions): Promise<MessagesByTime>;
    /**
     * Change the visibility of a message, such as one that should not be public. For admins; audited.
     *
     * Errors: MESSAGE_NOT_FOUND, SESSION_NOT_FOUND.
     */
    set_visibility(params: MessageSetVisibilityParams, options?: CallOptions): Promise<VisibilityChanged>;
  };
  missing: {
    /**
     * List missing context, most severe and oldest first.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params?: MissingListParams, options?: CallOptions): Promise<MissingListed>;
    /**
     * Report information that is missing, instead of guessing.
     *
     * If the same question is already open in the session, that one is returned.
     *
     * Errors: SESSION_NOT_FOUND, MISSING_CONTEXT_LIMIT, RECORD_EXISTS, SESSION_ARCHIVED.
     */
    report(params: MissingReportParams, options?: CallOptions): Promise<MissingReported>;
    /**
     * Request missing context from the user, earlier messages, a tool, a policy or a peer.
     *
     * Several requests in different forms are possible. Repeating a request changes nothing, except for a retrieval,
     * which searches again.
     *
     * Errors: MISSING_CONTEXT_NOT_FOUND, RECIPIENT_NOT_FOUND, SESSION_NOT_FOUND, ALREADY_RESOLVED, MISSING_CONTEXT_LIMIT, SESSION_ARCHIVED, STORE_FULL.
     */
    request(params: MissingRequestParams, options?: CallOptions): Promise<MissingRequested>;
    /**
     * Resolve missing context with references or an answer. Any participant may.
     *
     * An `answer` is written to the board. Writing the key `answer_…` also resolves it, and so does the reply of a
     * peer to its task message.
     *
     * Errors: MISSING_CONTEXT_NOT_FOUND, SESSION_NOT_FOUND, ALREADY_RESOLVED, SESSION_ARCHIVED.
     */
    resolve(params: MissingResolveParams, options?: CallOptions): Promise<MissingResolved>;
  };
  performance: {
    /**
     * Get performance figures: database, memory, CPU, caches, calls and trends.
     *
     * Calls, sessions, agents and caches are those of your tenant only. Memory, CPU and connections are those of the
     * answering process, for the operator's tenant (the default one, or the only one); for others they are null, because
     * they would show what other tenants do. History and trends cover all server processes and survive restarts. A figure
     * that cannot be measured is null.
     */
    read(params?: PerformanceReadParams, options?: CallOptions): Promise<Performance>;
  };
  pin: {
    /**
     * Pin a message, a board key or a key of your memory: it is part of every prompt, whatever the task.
     *
     * A pin of a session applies to all who may read the item; it stays when the key is written again.
     *
     * Errors: AGENT_NOT_FOUND, KEY_NOT_FOUND, MEMORY_NOT_FOUND, MESSAGE_NOT_FOUND, SESSION_NOT_FOUND, TEAM_NOT_FOUND, PIN_LIMIT, SESSION_ARCHIVED.
     */
    add(params?: PinAddParams, options?: CallOptions): Promise<PinInfo>;
    /**
     * List what is pinned in a session and in your memory, with its tokens.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params?: PinListParams, options?: CallOptions): Promise<PinList>;
    /**
     * Unpin a message, a board key or a key of your memory. The item itself stays.
     *
     * Errors: AGENT_NOT_FOUND, PIN_NOT_FOUND, SESSION_NOT_FOUND, TEAM_NOT_FOUND, SESSION_ARCHIVED.
     */
    remove(params?: PinRemoveParams, options?: CallOptions): Promise<PinRemoved>;
  };
  plan: {
    /** Show the tenant's plan: its limits, and how much of them is used. For admins. */
    show(params?: PlanShowParams, options?: CallOptions): Promise<PlanShown>;
  };
  policy: {
    /**
     * Delete an export policy. Exports made with it still refer to it, with the digest of its definition.
     *
     * Errors: POLICY_NOT_FOUND, POLICY_BUILT_IN.
     */
    delete(params: PolicyDeleteParams, options?: CallOptions): Promise<PolicyDeleted>;
    /** List the export policies that you may use, and which one is the default. */
    list(params?: PolicyListParams, options?: CallOptions): Promise<PolicyList>;
    /**
     * Add or replace an export policy: what an export may contain, in which form, and who may use the policy.
     *
     * A policy named default applies to exports that name none; while it exists, only admins may use the built-in ones.
     *
     * Errors: POLICY_BUILT_IN.
     */
    set(params: PolicySetParams, options?: CallOptions): Promise<PolicyInfo>;
  };
  receipt: {
    /**
     * List receipts of your prompts, newest first; those of agents below you with agent_id.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params?: ReceiptListParams, options?: CallOptions): Promise<ReceiptList>;
    /**
     * Show the prompt of a receipt again, byte for byte, in any wire form.
     *
     * Not possible once retention or a redaction has removed content of it.
     *
     * Errors: RECEIPT_NOT_FOUND, RECEIPT_PRUNED.
     */
    replay(params: ReceiptReplayParams, options?: CallOptions): Promise<PromptReplayed>;
    /**
     * Add up tokens and money of prompts against the conversation alone, by agent, session, model or tenant.
     *
     * Errors: SESSION_NOT_FOUND, QUOTA_EXCEEDED.
     */
    savings(params?: ReceiptSavingsParams, options?: CallOptions): Promise<SavingsReport>;
    /**
     * Show the receipt of a prompt: blocks, candidates, omissions with reasons, budget, savings and timing.
     *
     * Errors: RECEIPT_NOT_FOUND.
     */
    show(params: ReceiptShowParams, options?: CallOptions): Promise<ReceiptShown>;
  };
  records: {
    /**
     * Record what your own framework did with context: envelopes, selections, budgets, assemblies, compactions.
     *
     * Idempotent: adding an identical record changes nothing. A context_event is published under its class to event
     * subscribers. The source items of a compaction or summary must exist: stored ones, or items of the same call. Records
     * of other producers are read as openly as the standard is, kept and returned as they were given.
     *
     * Errors: SESSION_NOT_FOUND, SOURCE_ITEM_NOT_FOUND, RECORD_EXISTS, SESSION_ARCHIVED.
     */
    add(params: RecordsAddParams, options?: CallOptions): Promise<RecordsAdded>;
    /**
     * List what happened as portable records, in log order: by session, agent, turn, task, item or time.
     *
     * Key versions and messages are context items, sessions are surfaces; records added by agents are listed unchanged.
     * Only records that you may read now are listed.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params?: RecordsListParams, options?: CallOptions): Promise<Records>;
    /**
     * Redact an item wherever it is read: board, messages, windows, memory, histories, prompts, search, exports.
     *
     * An item is one version of a key, one message, or one recorded item, summary or assembly. Its author and admins may
     * redact it. The content stays stored for those with the permission `audit`, who read it with `records.reveal`.
     * Definitions and layers are redacted in records and exports only: write a new version of them.
     *
     * Errors: RECORD_NOT_FOUND, SESSION_NOT_FOUND.
     */
    redact(params: RecordsRedactParams, options?: CallOptions): Promise<ItemRedacted>;
    /**
     * Find the passage of a source ref in the current text of its source: exact, moved or lost.
     *
     * Exact means the same text at the same position. Weftline fetches nothing from outside.
     *
     * Errors: RECORD_NOT_FOUND, SESSION_NOT_FOUND.
     */
    resolve(params?: RecordsResolveParams, options?: CallOptions): Promise<SourceResolved>;
    /**
     * Read an item as it was before its redaction.
     *
     * Needs the permission `audit`, which admins grant, and access to the item itself; every call is audited.
     *
     * Errors: RECORD_NOT_FOUND, SESSION_NOT_FOUND.
     */
    reveal(params: RecordsRevealParams, options?: CallOptions): Promise<ItemRevealed>;
    /** Return the JSON Schema of a record type and the path at which this server publishes it. */
    schema(params: RecordsSchemaParams, options?: CallOptions): Promise<RecordSchema>;
    /**
     * Set the lifecycle state of an envelope. For the principal that recorded it, and for admins.
     *
     * States only move forward: draft, available, selected, assembled, injected; any of these may become compacted,
     * redacted, expired or archived.
     *
     * Errors: RECORD_NOT_FOUND, SESSION_NOT_FOUND, ILLEGAL_TRANSITION, SESSION_ARCHIVED.
     */
    set_lifecycle(params: RecordsSetLifecycleParams, options?: CallOptions): Promise<LifecycleSet>;
    /**
     * Show one record by its id: a stored one, or one derived from the board, messages, sessions or events.
     *
     * For an item, the answer includes the records that reference it and its redaction; redacted content is not shown.
     * The ref of a search result shows its full source ref, its entities and, as content, its text.
     *
     * Errors: RECORD_NOT_FOUND, SESSION_NOT_FOUND.
     */
    show(params: RecordsShowParams, options?: CallOptions): Promise<RecordShown>;
  };
  schemas: {
    /**
     * Read the JSON Schema of a record type.
     *
     * Errors: NOT_FOUND.
     */
    get(params: SchemasGetParams, options?: CallOptions): Promise<Record<string, unknown>>;
    /** List the schemas of all record types. */
    list(params?: SchemasListParams, options?: CallOptions): Promise<{ schema_version: string; schemas: { type: string; id: string; url: string; description: string; }[]; }>;
  };
  search: {
    /**
     * Find passages similar in meaning to a search result or a text; the result itself is excluded.
     *
     * Errors: CHUNK_NOT_FOUND, DOMAIN_NOT_FOUND, SESSION_NOT_FOUND.
     */
    find_similar(params?: SearchFindSimilarParams, options?: CallOptions): Promise<SimilarResponse>;
    /**
     * Gather one text for a prompt: the passages that answer a question, with surroundings, within a token budget.
     *
     * They are the ones that a prompt gets. Passages are numbered and have citations. With a ref instead
     * of a query: the surroundings of that search result.
     *
     * Errors: CHUNK_NOT_FOUND, DOMAIN_NOT_FOUND, SESSION_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED.
     */
    get_context(params?: SearchGetContextParams, options?: CallOptions): Promise<ContextResponse>;
    /**
     * Search everything you may see by keywords and meaning: documents, messages, boards, your memory and windows.
     *
     * Each result has a score and a ref, which context_records opens. If the answer may not be there, unsure is true and
     * only the best few results are returned.
     *
     * Errors: DOMAIN_NOT_FOUND, SESSION_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED.
     */
    query(params: SearchQueryParams, options?: CallOptions): Promise<SearchResponse>;
  };
  session: {
    /**
     * Add agents, humans, teams or patterns to a session; they see all of it, also what came before.
     *
     * For the creator of the session, those above it and admins.
     *
     * Errors: AGENT_NOT_FOUND, SESSION_NOT_FOUND, TEAM_NOT_FOUND, TOO_MANY_MEMBERS.
     */
    add_members(params: SessionAddMembersParams, options?: CallOptions): Promise<MembersAdded>;
    /**
     * Make a session read-only and keep it for reading and audit.
     *
     * Errors: SESSION_NOT_FOUND, SESSION_ARCHIVED.
     */
    archive(params: SessionArchiveParams, options?: CallOptions): Promise<SessionArchivedAt>;
    /**
     * Create a session: an isolated workspace for its members, with an empty board.
     *
     * It lasts until it is archived or deleted, across days, conversations and restarts. Members are you and the agents
     * below you, unless you name others.
     *
     * Errors: AGENT_NOT_FOUND, CONVENTIONS_NOT_FOUND, TEAM_NOT_FOUND, QUOTA_EXCEEDED, SESSION_EXISTS.
     */
    create(params: SessionCreateParams, options?: CallOptions): Promise<SessionCreated>;
    /**
     * Delete a session permanently, with its board, messages, session memory and windows.
     *
     * For its creator, those above it and admins. Refused while others depend on it, with the list of who and what, unless
     * forced. The audit log keeps an entry.
     *
     * Errors: SESSION_NOT_FOUND, SESSION_IN_USE.
     */
    delete(params: SessionDeleteParams, options?: CallOptions): Promise<SessionDeleted>;
    /**
     * Get a session: purpose, members, state, settings and latest messages.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    get(params: SessionGetParams, options?: CallOptions): Promise<SessionFound>;
    /**
     * Read everything on a session's board, values included, and verify its history.
     *
     * For admins only; every call is audited.
     *
     * Errors: BRANCH_NOT_FOUND, SESSION_NOT_FOUND.
     */
    inspect(params: SessionInspectParams, options?: CallOptions): Promise<Inspection>;
    /** List the sessions you are a member of, newest first. */
    list(params?: SessionListParams, options?: CallOptions): Promise<SessionList>;
    /**
     * Get an overview of a session: state, latest messages, figures.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    overview(params: SessionOverviewParams, options?: CallOptions): Promise<SessionOverview>;
    /**
     * Admit an agent again to a session that a rule ended for it. For human members with clearance 3 or higher.
     *
     * Errors: AGENT_NOT_FOUND, SESSION_NOT_FOUND.
     */
    reinstate(params: SessionReinstateParams, options?: CallOptions): Promise<AgentReinstated>;
    /**
     * Remove members from a session; they lose access to all of it at once.
     *
     * For the creator of the session, those above it and admins. Names an entry as the session shows it.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    remove_members(params: SessionRemoveMembersParams, options?: CallOptions): Promise<MembersRemoved>;
  };
  signing_key: {
    /**
     * Replace the secret that signs the tenant's tokens, and the key that signs its layers and definitions.
     *
     * This affects the whole tenant, so it needs clearance 5.
     */
    rotate(params?: SigningKeyRotateParams, options?: CallOptions): Promise<Success>;
  };
  step: {
    /**
     * Define a step of a task: the tools that callers in it see and may call, and no others.
     *
     * Callers enter it by the endpoint /mcp/step/NAME, or by a token or key that is bound to it. It takes effect on their
     * next call. It grants nothing: they need the same rights as without it.
     *
     * Errors: QUOTA_EXCEEDED.
     */
    define(params: StepDefineParams, options?: CallOptions): Promise<StepInfo>;
    /** List the steps that you can enter: of the tenant, of your tree and of the principals above you. */
    list(params?: StepListParams, options?: CallOptions): Promise<StepList>;
    /**
     * Remove a step. Credentials that are bound to it may call nothing until it is defined again.
     *
     * Errors: STEP_NOT_FOUND.
     */
    remove(params: StepRemoveParams, options?: CallOptions): Promise<Success>;
  };
  team: {
    /**
     * Add an agent or a human to a team; it sees the team's memory with its next call.
     *
     * For admins and for members with clearance 3 or higher, who can add principals that they may edit.
     *
     * Errors: AGENT_NOT_FOUND, TEAM_NOT_FOUND, TEAM_FULL.
     */
    add_member(params: TeamAddMemberParams, options?: CallOptions): Promise<MemberChanged>;
    /**
     * Create a team without members. For admins.
     *
     * Errors: TEAM_EXISTS.
     */
    create(params: TeamCreateParams, options?: CallOptions): Promise<TeamInfo>;
    /**
     * Delete a team with its memory and guidelines, for good. For admins; its name cannot be used again.
     *
     * Errors: TEAM_NOT_FOUND, TEAM_NOT_EMPTY.
     */
    delete(params: TeamDeleteParams, options?: CallOptions): Promise<TeamDeleted>;
    /** List the teams you are a member of; as an admin, all. */
    list(params?: TeamListParams, options?: CallOptions): Promise<TeamList>;
    /**
     * Remove a member from a team; it loses access with its next call.
     *
     * For admins and for members with clearance 3 or higher, who can remove principals that they may edit.
     *
     * Errors: AGENT_NOT_FOUND, TEAM_NOT_FOUND, TEAM_FULL.
     */
    remove_member(params: TeamRemoveMemberParams, options?: CallOptions): Promise<MemberChanged>;
    /**
     * Show a team you are a member of: its members, and the versions of its memory and guidelines.
     *
     * Errors: TEAM_NOT_FOUND.
     */
    show(params: TeamShowParams, options?: CallOptions): Promise<TeamShown>;
    /**
     * Change the description of a team. For admins.
     *
     * Errors: TEAM_NOT_FOUND.
     */
    update(params: TeamUpdateParams, options?: CallOptions): Promise<TeamInfo>;
  };
  token: {
    /**
     * Exchange an agent's API key for a token that expires.
     *
     * The token carries the requested permissions as far as an admin granted them to the agent. Send it as
     * `Authorization: Bearer TOKEN` with every request; an MCP client connects again with this header.
     *
     * Errors: STEP_NOT_FOUND.
     */
    issue(params: TokenIssueParams, options?: CallOptions): Promise<TokenIssued>;
    /**
     * Get a new token for the one that this call uses; the old one stays valid until it expires.
     *
     * A token can be refreshed for a day (by default); after that, authenticate with the API key again. One for a single
     * use ends with this call: of several calls with it, one gets a token.
     */
    refresh(params?: TokenRefreshParams, options?: CallOptions): Promise<TokenIssued>;
    /**
     * Revoke a token, or all of a principal, at once; as an admin, of one you may edit.
     *
     * Errors: AGENT_NOT_FOUND.
     */
    revoke(params?: TokenRevokeParams, options?: CallOptions): Promise<Success>;
  };
  tools: {
    /**
     * Describe an MCP tool or one of its actions in full: description, input schema, output schema on request.
     *
     * Errors: UNKNOWN_OPERATION.
     */
    describe(params: ToolsDescribeParams, options?: CallOptions): Promise<ToolDescription>;
    /** List the registered tools that you have: of the tenant, of your tree and of the principals above you. */
    list(params?: ToolsListParams, options?: CallOptions): Promise<RegisteredToolList>;
    /**
     * Register the tools of your runtime, so that each task gets the few it needs. All of them or none.
     *
     * Weftline does not call them: it chooses, describes and meters them. A name that is registered already gets the new
     * definition; names of Weftline's own tools and of tools registered above you are refused.
     *
     * Errors: QUOTA_EXCEEDED, TOOL_NAME_TAKEN.
     */
    register(params: ToolsRegisterParams, options?: CallOptions): Promise<ToolsRegistered>;
    /**
     * Remove a tool that you registered; registering it again brings it back.
     *
     * Errors: TOOL_NOT_REGISTERED.
     */
    remove(params: ToolsRemoveParams, options?: CallOptions): Promise<Success>;
    /** Find the MCP tools for a task among those you may use, each with one line on what it does. */
    search(params: ToolsSearchParams, options?: CallOptions): Promise<ToolsFound>;
    /**
     * Choose the tools for a task among the registered ones: those that fit it, at most ten.
     *
     * The list stays the same, byte for byte, while it has what the task needs, so that provider caches survive; another
     * task or step changes it.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    select(params: ToolsSelectParams, options?: CallOptions): Promise<ToolsSelected>;
  };
  trust: {
    /**
     * Delete or flag a source and everything derived from it. By default a dry run, which only shows what to do.
     *
     * Needs clearance 4. What was surely derived is deleted or flagged as the source is; what may have been is flagged.
     *
     * Errors: ITEM_NOT_FOUND.
     */
    forget(params: TrustForgetParams, options?: CallOptions): Promise<ItemForgotten>;
    /**
     * Show what was derived from an item, such as a poisoned document: by declaration, by copy, through prompts.
     *
     * Admins trace through the prompts of all agents, others through their own.
     *
     * Errors: ITEM_NOT_FOUND.
     */
    trace(params: TrustTraceParams, options?: CallOptions): Promise<ItemTraced>;
  };
  usage: {
    /**
     * Export usage as CSV or JSON lines, page by page: a row for each interval, agent, session, step and model.
     *
     * Errors: SESSION_NOT_FOUND, QUOTA_EXCEEDED.
     */
    export(params?: UsageExportParams, options?: CallOptions): Promise<UsageExported>;
    /**
     * Add up tokens, money, savings, latency and efficiency of model calls, by agent, team, model or time.
     *
     * Sums are exact at any time. You see your own usage and that of agents below you; admins see all.
     *
     * Errors: SESSION_NOT_FOUND, QUOTA_EXCEEDED.
     */
    report(params?: UsageReportParams, options?: CallOptions): Promise<UsageReported>;
  };
  webhook: {
    /**
     * Send future events to an address, signed. The secret is shown only once.
     *
     * The webhook receives the events that you may see, as long as you are an admin. A delivery that is not answered with
     * a 2xx status within ten seconds is retried for most of a day.
     *
     * Errors: SESSION_NOT_FOUND, TOO_MANY_WEBHOOKS.
     */
    create(params: WebhookCreateParams, options?: CallOptions): Promise<WebhookCreated>;
    /**
     * Delete a webhook and its pending deliveries.
     *
     * Errors: WEBHOOK_NOT_FOUND.
     */
    delete(params: WebhookDeleteParams, options?: CallOptions): Promise<WebhookDeleted>;
    /**
     * List a webhook's pending deliveries and dead letters, with the result of the last attempt.
     *
     * Errors: WEBHOOK_NOT_FOUND.
     */
    deliveries(params: WebhookDeliveriesParams, options?: CallOptions): Promise<DeliveryList>;
    /** List the webhooks with their delivery counts, without their secrets. */
    list(params?: WebhookListParams, options?: CallOptions): Promise<WebhookList>;
    /**
     * Send dead letters again, some or all, or every event from a seq on.
     *
     * The webhook-id of an event stays the same, so receivers can deduplicate.
     *
     * Errors: WEBHOOK_NOT_FOUND.
     */
    replay(params: WebhookReplayParams, options?: CallOptions): Promise<WebhookReplayed>;
    /**
     * Send an event of type weftline.webhook.test now and return the receiver's answer.
     *
     * Errors: WEBHOOK_NOT_FOUND.
     */
    test(params: WebhookTestParams, options?: CallOptions): Promise<WebhookTested>;
    /**
     * Disable a webhook, or enable it: it resumes where it stopped, with every event since then.
     *
     * Errors: WEBHOOK_NOT_FOUND, WEBHOOK_CANNOT_RUN.
     */
    update(params: WebhookUpdateParams, options?: CallOptions): Promise<WebhookInfo>;
  };
  window: {
    /**
     * Start a branch from a checkpoint in all windows that have it and that you may open, or in one.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND, WINDOW_NOT_FOUND, BRANCH_EXISTS, SESSION_ARCHIVED.
     */
    branch(params: WindowBranchParams, options?: CallOptions): Promise<CheckpointBranched>;
    /**
     * Name the current state of all windows that you may open, or of one, to return to it later.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED, SNAPSHOT_EXISTS.
     */
    checkpoint(params: WindowCheckpointParams, options?: CallOptions): Promise<Checkpoint>;
    /**
     * List the checkpoints of all windows that you may open, by label.
     *
     * Errors: AGENT_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND.
     */
    checkpoints(params: WindowCheckpointsParams, options?: CallOptions): Promise<Checkpoints>;
    /**
     * Create an agent's window in a session. A sub-agent's starts with a copy of its parent's SYSTEM and CONTEXT.
     *
     * Its limit is that of its own model; if that is smaller than the parent's, the parent gets a note.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED, WINDOW_EXISTS.
     */
    create(params: WindowCreateParams, options?: CallOptions): Promise<WindowView>;
    /**
     * Delete a window with its events and their history. Copies in other windows stay.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED, WINDOW_IN_USE.
     */
    delete(params: WindowDeleteParams, options?: CallOptions): Promise<WindowDeleted>;
    /**
     * Read the events of a window, oldest first, with those that other agents route to it.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND.
     */
    events(params: WindowEventsParams, options?: CallOptions): Promise<WindowEvents>;
    /**
     * Let an agent use another agent's window. Its limit becomes the minimum over all that share it.
     *
     * You need access to both windows: as an ancestor of both, or as one of them and ancestor of the other, or as an
     * admin. The agent's own window is kept until it leaves.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED, WINDOW_IN_USE.
     */
    join(params: WindowJoinParams, options?: CallOptions): Promise<WindowView>;
    /**
     * Let an agent leave the window it shares and use its own again. The others' limit is computed again.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED.
     */
    leave(params: WindowLeaveParams, options?: CallOptions): Promise<WindowView>;
    /**
     * List the windows of a session that you may open: your own, those of agents below you, as an admin all.
     *
     * Errors: SESSION_NOT_FOUND.
     */
    list(params: WindowListParams, options?: CallOptions): Promise<WindowList>;
    /**
     * Remove the newest event of a window and return it, such as an answer to be asked for again.
     *
     * Events that other agents route to the window stay. Its history keeps the event.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED.
     */
    pop(params: WindowPopParams, options?: CallOptions): Promise<WindowEventPopped>;
    /**
     * Copy what changed in the parent's SYSTEM and CONTEXT since a sub-agent's window was made or refreshed.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED.
     */
    refresh(params: WindowRefreshParams, options?: CallOptions): Promise<WindowRefreshed>;
    /**
     * Release events that are held because they look like an attack. Called by an agent, it asks a human.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, EVENT_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED.
     */
    release(params: WindowReleaseParams, options?: CallOptions): Promise<EventsReleased>;
    /**
     * Return a window to a checkpoint: yours, or another agent's, or all that have it and that you may open.
     *
     * History is not rewritten: the restored state is a new version. With from_agent_id, another agent's checkpoint is
     * restored into a window; its redacted events are left out.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED, VERSION_PRUNED.
     */
    restore(params: WindowRestoreParams, options?: CallOptions): Promise<CheckpointRestored>;
    /**
     * Show categories of a window to other agents, roles or teams. Nothing is copied: they see them in theirs.
     *
     * SYSTEM events of an agent that is no ancestor of the reader appear there as CONTEXT.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, TEAM_NOT_FOUND, WINDOW_NOT_FOUND, QUOTA_EXCEEDED, SESSION_ARCHIVED.
     */
    route(params: WindowRouteParams, options?: CallOptions): Promise<WindowRoutes>;
    /**
     * Show a window: limit, budgets and use by category, sharing, routes and clamps.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND.
     */
    show(params: WindowShowParams, options?: CallOptions): Promise<WindowView>;
    /**
     * Stop showing categories of a window to other agents, roles or teams.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED.
     */
    unroute(params: WindowUnrouteParams, options?: CallOptions): Promise<WindowRoutes>;
    /**
     * Change the settings of a window, such as its model. Budgets follow the new limit.
     *
     * Errors: AGENT_NOT_FOUND, BRANCH_NOT_FOUND, NOT_A_MEMBER, SESSION_NOT_FOUND, WINDOW_NOT_FOUND, SESSION_ARCHIVED.
     */
    update(params: WindowUpdateParams, options?: CallOptions): Promise<WindowView>;
  };
}
/** The codes of each kind of error. */
export const CODES = {
  NotFound: ["AGENT_NOT_FOUND", "ALERT_NOT_FOUND", "API_KEY_NOT_FOUND", "APPROVAL_NOT_FOUND", "BRANCH_NOT_FOUND", "BUDGET_NOT_FOUND", "CHUNK_NOT_FOUND", "COMPACTION_NOT_FOUND", "CONTEXT_KEY_NOT_FOUND", "CONTEXT_NOT_FOUND", "CONVENTIONS_NOT_FOUND", "DOCUMENT_NOT_FOUND", "DOCUMENT_VERSION_NOT_FOUND", "DOMAIN_NOT_FOUND", "EMBEDDING_MODEL_UNKNOWN", "EVENT_NOT_FOUND", "GATEWAY_SERVER_NOT_FOUND", "GATEWAY_TOOL_NOT_FOUND", "HOOKS_NOT_RUNNING", "HOOK_REFUSED", "INSTALLATION_NOT_FOUND", "ITEM_NOT_FOUND", "KEY_NOT_FOUND", "MEMORY_NOT_FOUND", "MESSAGE_NOT_FOUND", "MISSING_CONTEXT_NOT_FOUND", "MODEL_MIGRATION_NOT_FOUND", "NOT_A_MEMBER", "NOT_FOUND", "OBJECT_MISSING", "OUTPUT_NOT_FOUND", "PIN_NOT_FOUND", "POLICY_NOT_FOUND", "RECEIPT_NOT_FOUND", "RECIPIENT_NOT_FOUND", "RECOMMENDATION_NOT_FOUND", "RECORD_NOT_FOUND", "RESOURCE_NOT_FOUND", "REVIEW_NOT_FOUND", "SESSION_NOT_FOUND", "SNAPSHOT_NOT_FOUND", "SOURCE_ITEM_NOT_FOUND", "SOURCE_NOT_FOUND", "STEP_NOT_FOUND", "TEAM_NOT_FOUND", "TEMPLATE_NOT_FOUND", "TENANT_NOT_FOUND", "TOOL_NOT_REGISTERED", "UNKNOWN_OPERATION", "VERSION_NOT_FOUND", "WEBHOOK_NOT_FOUND", "WINDOW_NOT_FOUND"],
  Conflict: ["AGENT_EXISTS", "ALERT_RESOLVED", "ALREADY_RESOLVED", "APPROVAL_CLOSED", "APPROVAL_EXPIRED", "APPROVAL_INTERRUPTED", "APPROVAL_PENDING", "BACKUP_EXISTS", "BACKUP_INCOMPLETE", "BRANCH_EXISTS", "BRANCH_IN_USE", "BRANCH_LIMIT", "BRANCH_NOT_MERGED", "BUDGET_EXCEEDED", "COMPACTION_NOT_HELD", "CONTEXT_LIMIT_EXCEEDED", "CONTEXT_NOT_PULLED", "DATABASE_NOT_EMPTY", "DOCUMENT_NOT_QUARANTINED", "DOCUMENT_NOT_READY", "DOMAIN_EXISTS", "DOMAIN_WITHOUT_TEMPLATE", "EVENT_EXISTS", "GATEWAY_SERVER_EXISTS", "HISTORY_NOT_KEPT", "ILLEGAL_TRANSITION", "KEY_EXISTS", "MEMORY_LIMIT_EXCEEDED", "MISSING_CONTEXT_LIMIT", "MODEL_IN_USE", "MODEL_MIGRATION_IN_PROGRESS", "OBJECT_BUSY", "PIN_LIMIT", "POLICY_BUILT_IN", "PROMPT_OUTDATED", "QUOTA_EXCEEDED", "RECEIPT_PRUNED", "RECORD_EXISTS", "REVIEW_CLOSED", "SCHEMA_MISMATCH", "SCHEMA_OUTDATED", "SESSION_ARCHIVED", "SESSION_EXISTS", "SESSION_IN_USE", "SNAPSHOT_EXISTS", "SOURCES_OVERLAP", "STORE_FULL", "TEAM_EXISTS", "TEAM_FULL", "TEAM_NOT_EMPTY", "TENANT_EXISTS", "TOOL_NAME_TAKEN", "TOOL_OF_RUNTIME", "TOO_MANY_MEMBERS", "TOO_MANY_SOURCES", "TOO_MANY_WEBHOOKS", "UNRELATED_CONTEXTS", "USAGE_CONFLICT", "VERSION_CONFLICT", "VERSION_PRUNED", "WEBHOOK_CANNOT_RUN", "WINDOW_CHANGED", "WINDOW_EXISTS", "WINDOW_IN_USE", "WINDOW_TOO_SMALL"],
  Rejected: ["ADDRESS_REFUSED", "APPROVAL_LIMIT", "BACKUP_UNUSABLE", "BUNDLE_DAMAGED", "CONFIRMATION_NEEDED", "CONTENT_TOO_LARGE", "CONTEXT_OVER_BUDGET", "DOCUMENT_TOO_LARGE", "DOCUMENT_UNREADABLE", "FOLDER_REFUSED", "GATEWAY_SECRET_REFUSED", "INVALID_GUARDRAIL", "INVALID_INPUT_FORMAT", "INVALID_KEY", "INVALID_PARENT", "INVALID_SETTING", "METADATA_MISMATCH", "METHOD_NOT_ALLOWED", "SOURCE_ELSEWHERE", "TEXT_REFUSED", "UNKNOWN_TOOL", "UNKNOWN_TOOL_PROFILE", "VALUE_TOO_LARGE"],
  Forbidden: ["APPROVAL_NOT_POSSIBLE", "APPROVAL_REJECTED", "APPROVAL_REQUIRED", "AUTHENTICATION_ERROR", "BOUND_TO_SESSION", "BOUND_TO_STEP", "CONTENT_BLOCKED", "CONTENT_QUARANTINED", "DOCUMENT_QUARANTINED", "EVENTS_HELD", "FOREIGN_FORM", "GATEWAY_COMMANDS_OFF", "GATEWAY_RESULT_WITHHELD", "GATEWAY_TOOL_HELD", "GUARDRAIL_VIOLATION", "HOST_NOT_ALLOWED", "INVALID_API_KEY", "KEY_MISPLACED", "LAYER_VIOLATION", "METRICS_TOKEN", "NO_PROVIDER_KEY", "PERMISSION_DENIED", "POLICY_FORBIDDEN", "PROMPT_ALTERED", "PROMPT_BLOCKED", "PROTECTED_CATEGORY", "PROXY_KEY_MISSING", "SELF_MODIFICATION", "SESSION_TERMINATED", "SIGN_IN_LINK_INVALID", "TOKEN_EXPIRED", "TOOL_NOT_IN_STEP"],
  Unavailable: ["ANSWER_TOO_LARGE", "BACKUP_NOT_WRITTEN", "CALLER_UNKNOWN", "CALLS_UNCHECKED", "CANNOT_LISTEN", "CHAT_MODEL_UNAVAILABLE", "DISK_FULL", "EMBEDDER_UNAVAILABLE", "GATEWAY_SERVER_FAILED", "INJECTION_DETECTOR_UNAVAILABLE", "OBJECT_DAMAGED", "OBJECT_STORAGE_UNAVAILABLE", "POOL_NOT_INITIALIZED", "RATE_LIMITED", "RESULTS_UNCHECKED", "SEMANTIC_SEARCH_OFF", "SERVER_BUSY", "SERVER_NOT_INSTALLED", "STREAM_TOO_SLOW", "SYSTEM_UNAVAILABLE", "TOKENIZER_MISSING", "TOO_MANY_CONNECTIONS", "TOO_MANY_SUBSCRIPTIONS", "UPSTREAM_UNREACHABLE", "VALUE_DAMAGED"],
  WeftlineError: ["INTERNAL_ERROR"],
} as const;
export const ROUTES: Readonly<Record<string, string>> = {
  "advise.list": "GET /v1/advice",
  "advise.show": "GET /v1/advice/{recommendation_id}",
  "advise.try": "POST /v1/advice/try",
  "agent.capabilities": "GET /v1/usage-guidance",
  "agent.create": "POST /v1/agents",
  "agent.define": "PUT /v1/agents/{agent_id}/definition",
  "agent.list": "GET /v1/agents",
  "agent.read_definition": "GET /v1/agents/{agent_id}/definition",
  "agent.update": "PATCH /v1/agents/{agent_id}",
  "alerts.acknowledge": "POST /v1/alerts/{alert_id}/acknowledge",
  "alerts.list": "GET /v1/alerts",
  "alerts.resolve": "POST /v1/alerts/{alert_id}/resolve",
  "approval.approve": "POST /v1/approvals/{approval_id}/approve",
  "approval.list": "GET /v1/approvals",
  "approval.reject": "POST /v1/approvals/{approval_id}/reject",
  "approval.show": "GET /v1/approvals/{approval_id}",
  "audit.list": "GET /v1/audit",
  "board.check": "GET /v1/sessions/{session_id}/check",
  "board.compare_snapshots": "GET /v1/sessions/{session_id}/snapshots/{from_label}/comparison",
  "board.delete": "DELETE /v1/sessions/{session_id}/context/{key}",
  "board.guidance": "GET /v1/board-guidance",
  "board.list_keys": "GET /v1/sessions/{session_id}/context",
  "board.list_snapshots": "GET /v1/sessions/{session_id}/snapshots",
  "board.read": "GET /v1/sessions/{session_id}/context/{key}",
  "board.read_batch": "POST /v1/sessions/{session_id}/read-batch",
  "board.read_history": "GET /v1/sessions/{session_id}/history/{key}",
  "board.read_snapshot": "GET /v1/sessions/{session_id}/snapshots/{label}",
  "board.restore_snapshot": "POST /v1/sessions/{session_id}/snapshots/{label}/restore",
  "board.snapshot": "POST /v1/sessions/{session_id}/snapshots",
  "board.write": "PUT /v1/sessions/{session_id}/context/{key}",
  "budget.delete": "DELETE /v1/budgets/{subject}/{period}",
  "budget.list": "GET /v1/budgets",
  "budget.set": "PUT /v1/budgets/{subject}/{period}",
  "bundle.export": "POST /v1/export",
  "bundle.import": "POST /v1/import",
  "compaction.apply": "POST /v1/compactions/{compaction_id}/apply",
  "compaction.drop": "DELETE /v1/sessions/{session_id}/compaction",
  "compaction.expand": "POST /v1/sessions/{session_id}/expand",
  "compaction.facts": "GET /v1/sessions/{session_id}/facts",
  "compaction.list": "GET /v1/sessions/{session_id}/compactions",
  "compaction.show": "GET /v1/compactions/{compaction_id}",
  "context.assemble": "POST /v1/sessions/{session_id}/assemble",
  "context.compact": "POST /v1/sessions/{session_id}/compact",
  "context.copy": "POST /v1/agents/{agent_id}/context/copy",
  "context.emit_metrics": "POST /v1/sessions/{session_id}/metrics",
  "context.ingest": "POST /v1/sessions/{session_id}/ingest",
  "context.pull": "POST /v1/context/pull",
  "context.push": "POST /v1/context/push",
  "context.read": "GET /v1/context",
  "context.status": "GET /v1/context/status",
  "context.validate_prompt": "POST /v1/receipts/{receipt_id}/validate",
  "conventions.define": "PUT /v1/conventions/{name}",
  "conventions.list": "GET /v1/conventions",
  "conversation.calls": "GET /v1/conversations/calls",
  "conversation.open": "GET /v1/conversations/outputs/{handle}",
  "conversation.settings": "GET /v1/conversations/settings",
  "entity.list": "GET /v1/entities",
  "events.read": "GET /v1/events",
  "gateway.add": "POST /v1/gateway/servers",
  "gateway.approve": "POST /v1/gateway/servers/{name}/approve",
  "gateway.call": "POST /v1/gateway/tools/{name}",
  "gateway.get": "GET /v1/gateway/servers/{name}",
  "gateway.list": "GET /v1/gateway/servers",
  "gateway.refresh": "POST /v1/gateway/servers/{name}/refresh",
  "gateway.remove": "DELETE /v1/gateway/servers/{name}",
  "guardrail.check": "POST /v1/guardrails/check",
  "guardrail.list": "GET /v1/guardrails",
  "guardrail.test": "POST /v1/guardrails/test",
  "history.bisect": "GET /v1/history/{context_id}/bisect",
  "history.blame": "GET /v1/history/{context_id}/blame",
  "history.branch": "POST /v1/history/{context_id}/branches",
  "history.branches": "GET /v1/history/{context_id}/branches",
  "history.clear_retention": "DELETE /v1/retention/{subject}",
  "history.close_review": "POST /v1/history-reviews/{review_id}/close",
  "history.context_snapshots": "GET /v1/history/{context_id}/snapshots",
  "history.delete_branch": "DELETE /v1/history/{context_id}/branches/{branch}",
  "history.delete_snapshot": "DELETE /v1/history/{context_id}/snapshots/{label}",
  "history.diff": "GET /v1/history/{context_id}/diff",
  "history.log": "GET /v1/history/{context_id}/log",
  "history.merge": "POST /v1/history/{context_id}/merge",
  "history.prune": "POST /v1/history-prune",
  "history.prune_log": "GET /v1/history-prune-log",
  "history.resolve": "POST /v1/history-reviews/{review_id}/resolve",
  "history.retention": "GET /v1/retention",
  "history.review": "GET /v1/history-reviews/{review_id}",
  "history.reviews": "GET /v1/history-reviews",
  "history.rollback": "POST /v1/history/{context_id}/rollback",
  "history.set_retention": "PUT /v1/retention/{subject}",
  "history.show": "GET /v1/history/{context_id}/versions/{version}",
  "history.snapshot": "POST /v1/history/{context_id}/snapshots",
  "history.snapshots": "GET /v1/history-snapshots",
  "history.state": "GET /v1/history/{context_id}/state",
  "history.switch": "POST /v1/history/{context_id}/switch",
  "history.verify": "POST /v1/history/{context_id}/verify",
  "key.create": "POST /v1/agents/{agent_id}/keys",
  "key.list": "GET /v1/agents/{agent_id}/keys",
  "key.revoke": "DELETE /v1/keys/{key_id}",
  "key.rotate": "POST /v1/keys/{key_id}/rotate",
  "knowledge.add_document": "POST /v1/domains/{domain}/documents",
  "knowledge.add_documents": "POST /v1/domains/{domain}/documents/batch",
  "knowledge.add_source": "POST /v1/domains/{domain}/sources",
  "knowledge.allow_models": "PUT /v1/models/allowed",
  "knowledge.cancel_model_migration": "DELETE /v1/models/migration",
  "knowledge.create_domain": "POST /v1/domains",
  "knowledge.delete_document": "DELETE /v1/domains/{domain}/document",
  "knowledge.delete_domain": "DELETE /v1/domains/{domain}",
  "knowledge.discard_document": "POST /v1/domains/{domain}/document/discard",
  "knowledge.embed": "POST /v1/embed",
  "knowledge.evaluate_domain": "POST /v1/domains/{domain}/evaluation",
  "knowledge.get_document": "GET /v1/domains/{domain}/document",
  "knowledge.list_documents": "GET /v1/domains/{domain}/documents",
  "knowledge.list_domains": "GET /v1/domains",
  "knowledge.list_models": "GET /v1/models",
  "knowledge.list_sources": "GET /v1/domains/{domain}/sources",
  "knowledge.list_templates": "GET /v1/templates",
  "knowledge.read_document": "GET /v1/domains/{domain}/document/text",
  "knowledge.reindex": "POST /v1/domains/{domain}/reindex",
  "knowledge.reindex_all": "POST /v1/reindex",
  "knowledge.release_document": "POST /v1/domains/{domain}/document/release",
  "knowledge.remove_source": "DELETE /v1/domains/{domain}/sources/{source_id}",
  "knowledge.show_domain": "GET /v1/domains/{domain}",
  "knowledge.show_model_migration": "GET /v1/models/migration",
  "knowledge.show_reindexing": "GET /v1/reindex",
  "knowledge.show_template": "GET /v1/templates/{name}",
  "knowledge.start_model_migration": "POST /v1/models/migration",
  "knowledge.sync_source": "POST /v1/domains/{domain}/sources/{source_id}/sync",
  "knowledge.update_domain": "PATCH /v1/domains/{domain}",
  "knowledge.update_source": "PATCH /v1/domains/{domain}/sources/{source_id}",
  "layer.define": "PUT /v1/layers/{layer}",
  "layer.list": "GET /v1/layers",
  "layer.show": "GET /v1/context/layers",
  "memory.delete": "DELETE /v1/memory/{key:path}",
  "memory.get": "GET /v1/memory/{key:path}",
  "memory.inspect": "POST /v1/agents/{agent_id}/memory/inspect",
  "memory.list": "GET /v1/memory",
  "memory.overview": "GET /v1/agents/{agent_id}/memory",
  "memory.set": "PUT /v1/memory/{key:path}",
  "message.add": "POST /v1/sessions/{session_id}/messages",
  "message.inbox": "POST /v1/inbox",
  "message.inspect": "POST /v1/sessions/{session_id}/messages/inspect",
  "message.list": "GET /v1/sessions/{session_id}/messages",
  "message.search": "GET /v1/sessions/{session_id}/messages/search",
  "message.search_by_sender": "GET /v1/sessions/{session_id}/messages/search/by-sender",
  "message.search_by_timerange": "GET /v1/sessions/{session_id}/messages/search/by-timerange",
  "message.set_visibility": "PUT /v1/sessions/{session_id}/messages/{message_id}/visibility",
  "missing.list": "GET /v1/missing",
  "missing.report": "POST /v1/missing",
  "missing.request": "POST /v1/missing/{missing_id}/request",
  "missing.resolve": "POST /v1/missing/{missing_id}/resolve",
  "performance.read": "GET /v1/performance",
  "pin.add": "POST /v1/pins",
  "pin.list": "GET /v1/pins",
  "pin.remove": "POST /v1/pins/remove",
  "plan.show": "GET /v1/plan",
  "policy.delete": "DELETE /v1/export-policies/{name}",
  "policy.list": "GET /v1/export-policies",
  "policy.set": "PUT /v1/export-policies/{name}",
  "receipt.list": "GET /v1/receipts",
  "receipt.replay": "GET /v1/receipts/{receipt_id}/prompt",
  "receipt.savings": "GET /v1/savings",
  "receipt.show": "GET /v1/receipts/{receipt_id}",
  "records.add": "POST /v1/records",
  "records.list": "GET /v1/records",
  "records.redact": "POST /v1/records/redact",
  "records.resolve": "POST /v1/records/resolve",
  "records.reveal": "POST /v1/records/reveal",
  "records.schema": "GET /v1/records/schema",
  "records.set_lifecycle": "POST /v1/records/lifecycle",
  "records.show": "GET /v1/records/show",
  "schemas.get": "GET /schemas/agent-context/0.1.0/{type}.schema.json",
  "schemas.list": "GET /schemas",
  "search.find_similar": "POST /v1/search/similar",
  "search.get_context": "POST /v1/search/get-context",
  "search.query": "POST /v1/search",
  "session.add_members": "POST /v1/sessions/{session_id}/members",
  "session.archive": "POST /v1/sessions/{session_id}/archive",
  "session.create": "POST /v1/sessions",
  "session.delete": "DELETE /v1/sessions/{session_id}",
  "session.get": "GET /v1/sessions/{session_id}",
  "session.inspect": "POST /v1/sessions/{session_id}/inspect",
  "session.list": "GET /v1/sessions",
  "session.overview": "GET /v1/sessions/{session_id}/overview",
  "session.reinstate": "POST /v1/sessions/{session_id}/reinstate",
  "session.remove_members": "POST /v1/sessions/{session_id}/members/remove",
  "signing_key.rotate": "POST /v1/signing-keys/rotate",
  "step.define": "PUT /v1/steps/{name}",
  "step.list": "GET /v1/steps",
  "step.remove": "DELETE /v1/steps/{name}",
  "team.add_member": "PUT /v1/teams/{team}/members/{agent_id}",
  "team.create": "POST /v1/teams",
  "team.delete": "DELETE /v1/teams/{team}",
  "team.list": "GET /v1/teams",
  "team.remove_member": "DELETE /v1/teams/{team}/members/{agent_id}",
  "team.show": "GET /v1/teams/{team}",
  "team.update": "PATCH /v1/teams/{team}",
  "token.issue": "POST /v1/tokens",
  "token.refresh": "POST /v1/tokens/refresh",
  "token.revoke": "POST /v1/tokens/revoke",
  "tools.describe": "GET /v1/tools/{name}",
  "tools.list": "GET /v1/registered-tools",
  "tools.register": "POST /v1/registered-tools",
  "tools.remove": "POST /v1/registered-tools/remove",
  "tools.search": "GET /v1/tools",
  "tools.select": "POST /v1/tool-selections",
  "trust.forget": "POST /v1/trust/forget",
  "trust.trace": "GET /v1/trust/trace",
  "usage.export": "GET /v1/usage/export",
  "usage.report": "GET /v1/usage",
  "webhook.create": "POST /v1/webhooks",
  "webhook.delete": "DELETE /v1/webhooks/{webhook_id}",
  "webhook.deliveries": "GET /v1/webhooks/{webhook_id}/deliveries",
  "webhook.list": "GET /v1/webhooks",
  "webhook.replay": "POST /v1/webhooks/{webhook_id}/replay",
  "webhook.test": "POST /v1/webhooks/{webhook_id}/test",
  "webhook.update": "PATCH /v1/webhooks/{webhook_id}",
  "window.branch": "POST /v1/sessions/{session_id}/checkpoints/{label}/branch",
  "window.checkpoint": "POST /v1/sessions/{session_id}/checkpoints",
  "window.checkpoints": "GET /v1/sessions/{session_id}/checkpoints",
  "window.create": "POST /v1/sessions/{session_id}/window",
  "window.delete": "DELETE /v1/sessions/{session_id}/window",
  "window.events": "GET /v1/sessions/{session_id}/window/events",
  "window.join": "POST /v1/sessions/{session_id}/window/join",
  "window.leave": "POST /v1/sessions/{session_id}/window/leave",
  "window.list": "GET /v1/sessions/{session_id}/windows",
  "window.pop": "POST /v1/sessions/{session_id}/window/pop",
  "window.refresh": "POST /v1/sessions/{session_id}/window/refresh",
  "window.release": "POST /v1/sessions/{session_id}/window/release",
  "window.restore": "POST /v1/sessions/{session_id}/checkpoints/{label}/restore",
  "window.route": "POST /v1/sessions/{session_id}/window/routes",
  "window.show": "GET /v1/sessions/{session_id}/window",
  "window.unroute": "POST /v1/sessions/{session_id}/window/unroute",
  "window.update": "PATCH /v1/sessions/{session_id}/window",
};
