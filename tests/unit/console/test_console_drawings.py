"""What pages compute themselves: columns of a diff, the branch graph, bars, the tree of agents, texts of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from weftline.history.text_diff import DiffBudget, text_diff
from weftline.prompts.assembly.receipts import ReceiptBlock, digest_of
from weftline.transports.console.item_links import item_link, owner_of
from weftline.transports.console.pages.agents import tree_of
from weftline.transports.console.prompt_inspection import PromptChanges, prompt_bar
from weftline.transports.console.prompt_reading import block_messages, block_texts, readable, turns_of
from weftline.transports.console.rendering import Part, inert, segments
from weftline.transports.console.side_by_side import DiffRow, DiffSide, compared, rows_of
from weftline.transports.console.timeline import LANE, MARGIN, STEP, Lane, draw, groups_of


def diff_of(before: str, after: str) -> str:
    return text_diff(before, after, DiffBudget(10_000, 10_000)).text


def test_removed_lines_stand_next_to_the_added_ones() -> None:
    rows = rows_of(diff_of("one\nthe old way\nthree", "one\nthe new way\nand more\nthree"))
    assert rows == [
        DiffRow("same", DiffSide(1, "one"), DiffSide(1, "one")),
        DiffRow("changed", DiffSide(2, "the ", "old", " way"), DiffSide(2, "the ", "new", " way")),
        DiffRow("changed", None, DiffSide(3, "and more")),
        DiffRow("same", DiffSide(3, "three"), DiffSide(4, "three")),
    ]


async def test_lines_that_a_page_has_no_room_for_are_counted() -> None:
    long = "\n".join(f"line {number} of a text that is too long for one page" for number in range(2_000))
    first, second = await compared([("", long), ("a", "b")])
    assert 0 < first.omitted_lines < 2_000
    assert len(first.text.splitlines()) + first.omitted_lines == 2_001
    assert (second.text, second.omitted_lines) == ("", 3)


@pytest.mark.parametrize(
    ("line_id", "title", "link"),
    [
        ("board:s1@idea", "History of the board", "/console/sessions/s1"),
        ("window:s1:analysis", "History of the window of analysis", "/console/sessions/s1/windows/analysis"),
        ("context:a/b:learned_knowledge", "History of the persistent context", "/console/agents/a%2Fb"),
        ("agent:analysis", "History of the definition", "/console/agents/analysis"),
    ],
)
def test_a_history_names_whose_it_is(line_id: str, title: str, link: str) -> None:
    owner = owner_of(line_id)
    assert owner is not None
    assert (owner.title, owner.link) == (title, link)


def test_a_history_of_another_kind_has_no_page() -> None:
    assert [owner_of(each) for each in ("layer:tenant", "team:orders", "board:", "nothing")] == [None] * 4


def test_a_bar_of_many_blocks_joins_those_of_one_kind() -> None:
    blocks = [("layer", False), *[("conversation", number == 299) for number in range(400)], ("task", False)]
    bar = prompt_bar(receipt_of(blocks))
    assert [(each.kind, each.is_marked) for each in bar] == [
        ("layer", False),
        ("conversation", True),
        ("conversation", False),
        ("task", False),
    ]
    assert bar[1].label == "conversation: 300 blocks, 3,000 tokens"
    assert sum(each.width for each in bar) == pytest.approx(1_000, abs=0.1)
    assert len(prompt_bar(receipt_of(blocks[:200]))) == 200


def receipt_of(blocks: list[tuple[str, bool]]) -> Any:
    """Return a receipt with blocks of 10 tokens each, as far as a bar needs it."""
    return SimpleNamespace(
        tools_tokens=0,
        blocks=[
            SimpleNamespace(kind=kind, tokens=10, block_id=f"b{number}", cache_point=marked)
            for number, (kind, marked) in enumerate(blocks)
        ],
    )


def test_a_value_that_begins_or_ends_has_one_side() -> None:
    assert rows_of(diff_of("", "a\nb")) == [
        DiffRow("changed", None, DiffSide(1, "a")),
        DiffRow("changed", None, DiffSide(2, "b")),
    ]
    assert rows_of(diff_of("a", "")) == [DiffRow("changed", DiffSide(1, "a"), None)]
    assert rows_of("") == []


def test_lines_between_distant_changes_are_a_gap() -> None:
    before = [f"line {number}" for number in range(40)]
    after = [*before[:2], "first", *before[3:37], "second", *before[38:]]
    rows = rows_of(diff_of("\n".join(before), "\n".join(after)))
    assert [row.kind for row in rows].count("gap") == 1
    changed = [(row.old.number, row.new.number) for row in rows if row.kind == "changed" and row.old and row.new]
    assert changed == [(3, 3), (38, 38)]


def test_lines_that_look_like_signs_are_text() -> None:
    rows = rows_of(diff_of("- a list\n+ a sum\n@@ -1 +1 @@", "- a list\n+ a sun\n@@ -1 +1 @@"))
    assert [(row.old.before if row.old else None) for row in rows] == ["- a list", "+ a su", "@@ -1 +1 @@"]


@dataclass(frozen=True)
class Commit:
    version: int
    at: int
    merged: Any = None


@dataclass(frozen=True)
class Merged:
    context_id: str
    version: int


def test_a_branch_leaves_its_line_and_a_merge_joins_it_again() -> None:
    lanes = [Lane("board:s", "main"), Lane("board:s@idea", "idea", "board:s", 1)]
    logs = {
        "board:s": [Commit(2, 40, Merged("board:s@idea", 3)), Commit(1, 10)],
        "board:s@idea": [Commit(3, 30), Commit(2, 20), Commit(1, 10)],
    }
    graph = draw(lanes, logs, 60)
    assert [(each.branch, each.commit.version, each.x, each.y) for each in graph.commits] == [
        ("main", 1, MARGIN, MARGIN),
        ("idea", 2, MARGIN + STEP, MARGIN + LANE),
        ("idea", 3, MARGIN + 2 * STEP, MARGIN + LANE),
        ("main", 2, MARGIN + 3 * STEP, MARGIN),
    ]
    assert [(edge.kind, edge.lane) for edge in graph.edges] == [
        ("parent", 1),
        ("parent", 1),
        ("parent", 0),
        ("merge", 1),
    ]


def test_only_the_newest_commits_are_drawn() -> None:
    graph = draw([Lane("board:s", "main")], {"board:s": [Commit(number, number) for number in range(9, 0, -1)]}, 3)
    assert [each.commit.version for each in graph.commits] == [7, 8, 9]
    assert len(graph.edges) == 2
    assert draw([Lane("board:s", "main")], {"board:s": []}, 3).commits == []


def test_parts_fill_a_bar_and_never_more() -> None:
    drawn = segments([Part("layer", 1, "a"), Part("task", 3, "b", is_marked=True)])
    assert [(each.x, each.width, each.is_marked) for each in drawn] == [(0, 250, False), (250, 750, True)]
    assert [each.width for each in segments([Part("layer", 3, "a"), Part("task", 3, "b")], 4)] == [750, 250]
    assert [each.width for each in segments([Part("layer", 0, "a")])] == [0]


@dataclass(frozen=True)
class Agent:
    agent_id: str
    parent_id: str | None


def test_agents_stand_below_their_parents() -> None:
    agents: Any = [Agent("a", None), Agent("b", "z"), Agent("c", "a"), Agent("d", "c"), Agent("e", "a")]
    rows = [(row.agent.agent_id, row.depth) for row in tree_of(agents)]
    assert rows == [("a", 0), ("c", 1), ("d", 2), ("e", 1), ("b", 0)]


def block(block_id: str, *messages: Any) -> ReceiptBlock:
    return ReceiptBlock(block_id=block_id, kind="conversation", digest=digest_of(list(messages)).hex(), tokens=1)


def test_a_block_has_the_messages_that_give_its_digest() -> None:
    asked = {"role": "assistant", "tool_calls": [{"call_id": "1", "name": "look", "arguments": "{}"}]}
    answered = {"role": "tool", "content": "found", "tool_call_id": "1"}
    said = {"role": "user", "content": "hello"}
    blocks = [block("first", said), block("second", asked, answered), block("third", said)]
    texts = block_texts(block_messages(blocks, [said, asked, answered, said]))
    assert texts == {"first": "hello", "second": "look({})\n\nfound", "third": "hello"}
    assert block_texts(block_messages(blocks, [said, asked])) == {"first": "hello"}
    assert block_texts(block_messages(blocks, [])) == {}


def test_each_passage_has_the_title_of_its_own_section() -> None:
    """A heading is written once for sections that follow each other; only the first of them is named by it."""
    heading, first, second, rest = (
        "[Incidents > May: wrong prices]",
        "## May: wrong prices\nAn old file.",
        "## June: no stock",
        "by a typing error.",
    )
    said = "analysis: Found it."
    text = f"{heading}\n{first}\n{second}\n{rest}\n[session s1, June]\n{said}"
    places = {
        "domain:d/1": first,
        "domain:d/2": second,
        "domain:d/3": rest,
        "message:s1/4": said,
    }
    message = {"role": "user", "content": text}
    spans = {ref: (text.index(part), text.index(part) + len(part)) for ref, part in places.items()}
    retrieved = ReceiptBlock(block_id="r", kind="retrieved", digest="", tokens=9, spans=spans)
    turn = turns_of(SimpleNamespace(blocks=[retrieved], documents={}), {"r": [message]}, 0, 0, 1)[0]  # type: ignore[arg-type]
    assert [part.title for part in turn.parts] == [
        "Incidents > May: wrong prices",
        "Incidents > June: no stock",
        "Incidents > June: no stock",
        "Message 4",
    ]


def test_what_was_found_for_another_task_is_compared_with_what_was_found_before() -> None:
    said, old, new = (
        block("said", {"role": "user", "content": "hello"}),
        ReceiptBlock(block_id="retrieved:1", kind="retrieved", digest="a", tokens=1),
        ReceiptBlock(block_id="retrieved:2", kind="retrieved", digest="b", tokens=1),
    )
    dropped = block("dropped", {"role": "user", "content": "bye"})
    before, after = SimpleNamespace(blocks=[dropped, old]), SimpleNamespace(blocks=[said, new])
    changes = PromptChanges.of(before, after)  # type: ignore[arg-type]
    assert [(each.change, each.before) for each in changes.blocks] == [
        ("new", "said"),
        ("changed", "retrieved:1"),
        ("gone", "dropped"),
    ]


def test_blocks_are_compared_without_the_tags_around_them() -> None:
    layers = '<weftline:layer level="1" name="platform">\nBe exact.\n</weftline:layer>'
    assert readable(layers) == "[platform]\nBe exact."
    assert readable('<weftline:data source="board">\n- a: <b>\n</weftline:data>') == "- a: <b>"


def test_steps_of_a_timeline_lead_to_what_they_changed() -> None:
    def event(seq: int, kind: str, subject: str) -> Any:
        at = datetime(2026, 11, 19, second=seq, tzinfo=UTC)
        return SimpleNamespace(
            seq=seq, at=at, type=kind, subject=subject, actor="planner", agent_id="planner", session_id="s1", data={}
        )

    events = event(1, "session.created", "s1"), event(2, "board.written", "goal"), event(3, "message.added", "7")
    steps = groups_of(events, [])[0].steps
    assert [step.link for step in steps] == [
        None,
        "/console/sessions/s1/keys/goal",
        "/console/sessions/s1/messages?offset=0#message-7",
    ]


@pytest.mark.parametrize(
    ("ref", "page"),
    [
        ("board:s1/goal", "/console/sessions/s1/keys/goal"),
        ("message:s1/7", "/console/sessions/s1/messages?offset=0#message-7"),
        ("window:s1:planner/e1", "/console/sessions/s1/windows/planner"),
        ("knowledge://handbook/a%20b.md?version=2", "/console/knowledge/handbook/document?document=a%20b.md"),
        ("layer:team:research", "/console/history/layer%3Ateam%3Aresearch"),
        ("layer:platform", None),
        ("context:planner:learned_knowledge/fact", "/console/agents/planner/context"),
        ("board:s1", "/console/sessions/s1"),
        ("tool:search", None),
        ("javascript:alert(1)", None),
    ],
)
def test_items_lead_to_their_pages(ref: str, page: str | None) -> None:
    found = item_link(ref)
    assert found is None or found.startswith("/console/")
    assert found == page


@pytest.mark.parametrize("hidden", ["\u202e", "\u2028", "\xad", "\u3164", "\U000e0041", "\U000e0100", "\u200b", "\x9b"])
def test_characters_that_are_not_seen_are_named(hidden: str) -> None:
    shown = inert(f"<b>{hidden}ok\n")
    assert hidden not in shown
    assert f"\\u{ord(hidden):04x}</span>ok\n" in shown
    assert shown.startswith("&lt;b&gt;<span")


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße, 漢字 العربية\t\U0001f600\ufe0f\r\n"
    assert inert(text) == text
