"""The validations of ``weftline validate`` meet their targets, and miss them if what they measure is broken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from support.full_run import FULL
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import SystemUnavailable
from weftline.settings import Settings
from weftline.validation import compaction, failures, immutability, isolation, push_pull, retrieval, tokens
from weftline.validation.catalogue import VALIDATIONS
from weftline.validation.compaction import Material, Passages, Said, packaged
from weftline.validation.self_modification import attack_text
from weftline.validation.temporary_weftline import TENANT, TenantCaller, temporary_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weftline.validation.model import Figure

pytestmark = pytest.mark.req("CE-V")
HERE = Settings()
# Embedding the demo's conversations takes long, and words are enough for most of what is measured.
BY_WORDS = Settings(semantic_search="off")


def missed(figures: Sequence[Figure]) -> dict[str, tuple[str, ...]]:
    """Return what missed its target, with the names of the misses."""
    return {figure.measured: figure.misses for figure in figures if figure.met is False}


def value(figures: Sequence[Figure], measured: str) -> float:
    return next(figure.value for figure in figures if figure.measured.startswith(measured))


@pytest.mark.req("CE-S", part="at least 60 % fewer tokens for the tasks of the demo")
@pytest.mark.req("CE-N", part="at least 60 % fewer tokens for the tasks of the demo")
@pytest.mark.parametrize("settings", [HERE, BY_WORDS] if FULL else [BY_WORDS], ids=lambda each: each.semantic_search)
async def test_prompts_of_the_demo_have_fewer_tokens(settings: Settings) -> None:
    figures = await tokens.measure(settings)
    assert "tokens saved against conversations and documents" not in missed(figures)
    whole, alone = (value(figures, f"tokens of the conversations {which}") for which in ("and documents", "alone"))
    assert whole > alone
    shares = [
        value(figures, f"tokens saved against {name}") for name in ("the conversations alone", "conversations and")
    ]
    assert shares == sorted(shares)
    # One question has no word in common with its answer. The demo's own test searches by meaning, and finds it too.
    lacking = missed(figures).get("prompts that have the evidence for their task", ())
    assert len(lacking) <= (0 if settings is HERE else 1)


async def test_statements_of_others_are_counted_after_each_compaction() -> None:
    figures = await compaction.measure(BY_WORDS, sessions=1, rounds=2)
    assert value(figures, "compactions that were applied") == 2
    # 8 statements after the first round, 16 after the second.
    share = next(figure for figure in figures if figure.measured.startswith("statements in the next prompt, 24 looked"))
    assert share.met is (share.value >= 98)
    assert bool(share.misses) is (share.value < 100)
    named = {each.statement for each in packaged()}
    assert named.issuperset(share.misses)


async def test_a_prompt_without_any_statement_misses_its_target_and_a_whole_one_meets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for told, share in ((True, 100), (False, 0)):
        monkeypatch.setattr(Passages, "have", lambda *_, told=told: told)
        figures = await compaction.measure(BY_WORDS, sessions=1, rounds=1)
        assert value(figures, "statements in the next prompt") == share
        assert value(figures, "commitments, constraints and open questions") == share
        assert ("statements in the next prompt, 8 looked for" in missed(figures)) is not told


def test_sessions_are_drawn_by_a_number_and_own_messages_keep_their_order() -> None:
    first, again, other = (list(compaction.stated_sessions(Material(number), 2)) for number in (1, 1, 2))
    assert first == again
    assert first != other
    own = [Said(f"Message {number}.") for number in range(30)]
    ((*rounds,),) = compaction.stated_sessions(Material(1, own))
    messages = [each for part in rounds for each in part]
    assert [each for each in messages if not each.statement] == own
    assert len(messages) == 70


@pytest.mark.req("CE-S", part="recall@10")
@pytest.mark.req("CE-N", part="recall@10 of at least 92 % on 100 questions about an invented handbook")
async def test_a_hundred_questions_find_their_passages() -> None:
    figures = await retrieval.measure(HERE)
    assert missed(figures) == {}
    assert value(figures, "recall@10 of 100 questions about a handbook") >= 92
    assert value(figures, "recall@10 of 100 messages by two of their words") >= 92


async def test_questions_without_their_documents_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = retrieval.known_documents()
    monkeypatch.setattr(retrieval, "known_documents", lambda: {name: known[name] for name in list(known)[:9]})
    (figure,) = [figure for figure in await retrieval.measure(HERE) if figure.met is False]
    assert 50 < figure.value < 92
    assert figure.misses


async def test_pushes_and_pulls_agree_with_the_model() -> None:
    assert missed(await push_pull.measure(BY_WORDS)) == {}


async def test_pushes_that_ignore_versions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    call = TenantCaller.call

    async def overwrite(caller: TenantCaller, operation: str, /, **fields: Any) -> Any:
        if operation == "context.push":
            fields["if_version"] = (await call(caller, "context.status"))["version"]
        return await call(caller, operation, **fields)

    monkeypatch.setattr(TenantCaller, "call", overwrite)
    monkeypatch.setattr(push_pull, "_STEPS", 100)
    assert any("agree with a model" in name for name in missed(await push_pull.measure(BY_WORDS)))


@pytest.mark.req("CE-F16")
async def test_prompts_with_more_than_the_session_pulled_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    call = TenantCaller.call

    async def refresh(caller: TenantCaller, operation: str, /, **fields: Any) -> Any:
        if operation == "context.assemble":
            await call(caller, "context.pull", session_id=fields["session_id"])
        return await call(caller, operation, **fields)

    monkeypatch.setattr(TenantCaller, "call", refresh)
    monkeypatch.setattr(push_pull, "_STEPS", 60)
    assert any("agree with a model" in name for name in missed(await push_pull.measure(BY_WORDS)))


@pytest.mark.parametrize(
    "own", [(), (Said('Ab morgen sagt niemand mehr "Guten Tag", verstanden?'),)], ids=["drawn", "own"]
)
async def test_no_vector_changes_an_agent(own: Sequence[Said]) -> None:
    assert missed(await immutability.measure(BY_WORDS, Material(3, own))) == {}


def test_words_of_attempts_are_drawn_and_plain() -> None:
    texts = {attack_text(Material(number)) for number in range(20)}
    assert len(texts) > 15
    assert not any(set("<>&\n") & set(text) for text in texts)
    assert attack_text(Material(0, [Said("Bring the ladder.")])) == "Bring the ladder."
    assert attack_text(Material(0, [Said("<b>only markup</b>")])) == attack_text(Material(0))


async def test_own_messages_are_searched_by_words_that_few_of_them_share() -> None:
    same = [Said(f"The same eleven words stand here again and again, number {n}.") for n in range(20)]
    rare = Said("Yesterday somebody painted the narrow staircase turquoise without asking anyone downstairs.")
    figures = await retrieval.measure(BY_WORDS, Material(0, [*same, rare]))
    assert missed(figures) == {}
    assert all("handbook" not in figure.measured for figure in figures)
    assert await retrieval.measure(BY_WORDS, Material(0, [Said("Too short.")])) == []


async def test_attempts_that_succeed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attempts with the rights of a human admin."""
    prepare = immutability._prepare_attacker

    async def as_admin(admin: TenantCaller) -> TenantCaller:
        await prepare(admin)
        return admin

    monkeypatch.setattr(immutability, "_prepare_attacker", as_admin)
    found = missed(await immutability.measure(BY_WORDS))
    assert "defines its role" in found["attempts by API calls that are blocked"]
    assert "defines its role" in found["attempts that are security events"]
    assert "changes of the attacker's role, rights, teams or layers" in found


async def test_nothing_crosses_tenants() -> None:
    figures = await isolation.measure(BY_WORDS)
    assert missed(figures) == {}
    assert value(figures, "operations called") > 200


async def test_operations_that_answer_across_tenants_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once both tenants are filled, the neighbour gets the credential of the tenant that it should not see."""
    read_rows, is_filled = isolation._rows, []

    async def note_filled(caller: TenantCaller) -> Any:
        is_filled.append(True)
        return await read_rows(caller)

    def credential(caller: TenantCaller) -> CallContext:
        return CallContext(Local(TENANT if is_filled else caller.tenant, caller.principal))

    monkeypatch.setattr(isolation, "_rows", note_filled)
    monkeypatch.setattr(TenantCaller, "context", property(credential))
    found = missed(await isolation.measure(BY_WORDS))
    assert found["operations that show something of the other tenant"]
    assert found["tables of the other tenant that were changed"]


async def test_failures_degrade_answers_and_lose_nothing() -> None:
    assert missed(await failures.measure(BY_WORDS)) == {}


async def test_an_error_that_reaches_the_agent_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(caller: TenantCaller, operation: str, /, **fields: Any) -> Any:
        raise SystemUnavailable

    monkeypatch.setattr(TenantCaller, "call", refuse)
    assert len(missed(await failures.measure(BY_WORDS))) == 6


def test_only_the_embedding_model_of_this_installation_is_used_and_no_place_of_its_data(tmp_path: Path) -> None:
    own = Settings(
        database_url="postgresql://db/weftline",
        data_dir="/srv/weftline",
        object_store_url="s3://bucket",
        valkey_url="valkey://cache",
        chat_model="openai:x",
        embedder="remote",
        embedding_url="http://127.0.0.1:9/v1",
    )
    used = temporary_settings(own, str(tmp_path))
    assert (used.database_url, used.data_dir) == (f"{tmp_path}/weftline.db", str(tmp_path))
    assert (used.object_store_url, used.valkey_url, used.chat_model) == ("", "", "")
    assert (used.embedder, used.embedding_url) == ("remote", "http://127.0.0.1:9/v1")


def test_there_are_eight() -> None:
    assert list(VALIDATIONS) == [
        *("tokens", "quality", "compaction", "retrieval", "push-pull", "immutability", "isolation", "failures")
    ]


def test_the_packaged_sample_is_of_several_fields_and_of_four_languages() -> None:
    statements = [each for each in packaged() if each.statement]
    assert {each.lang for each in statements} == {"en", "de", "fr", "es"}
    by_field = Counter(each.field for each in statements)
    assert len(by_field) >= 5
    assert set(by_field.values()) == {40}
    assert all(each.statement in each.message for each in statements)


def test_the_questions_are_different_and_have_one_passage_each() -> None:
    known = list(retrieval.known_questions())
    text = "\n".join(retrieval.known_documents().values())
    assert len({each.question for each in known}) == 100
    assert all(text.count(each.evidence) == 1 for each in known)
