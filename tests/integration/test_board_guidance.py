"""Prompt text about the board for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("SC-10")
GROUPS = [{"title": "Quality", "keys": [{"key": "root_cause", "purpose": "why it happened"}]}]


async def test_the_default_guidance_has_conventions_write_discipline_and_read_pattern(world: World) -> None:
    guidance = await world.analysis.call("board.guidance")
    assert guidance["conventions"] == "default"
    for word in ("problem_summary", "decisions_made", "list_keys", "value_size_tokens", "500 tokens", "credentials"):
        assert word in guidance["text"]


async def test_each_section_can_be_requested_alone(world: World) -> None:
    parts = [
        (await world.analysis.call("board.guidance", part=part))["text"]
        for part in ("conventions", "writing", "reading")
    ]
    assert "\n\n".join(parts) == (await world.analysis.call("board.guidance"))["text"]


async def test_guidance_includes_the_conventions_of_the_session(world: World) -> None:
    defined = await world.admin.call("conventions.define", name="capa", groups=GROUPS)
    assert defined == {"success": True, "name": "capa", "key_count": 1}
    await world.planner.create_session("quality", conventions="capa")
    guidance = await world.analysis.call("board.guidance", session_id="quality")
    assert guidance["conventions"] == "capa"
    assert "root_cause  why it happened" in guidance["text"]
    assert "problem_summary" not in guidance["text"]
    assert (await world.analysis.call("conventions.list"))["names"] == ["capa", "default"]


async def test_an_admin_can_replace_the_default_conventions(world: World) -> None:
    await world.admin.call("conventions.define", name="default", groups=GROUPS)
    assert "root_cause" in (await world.analysis.call("board.guidance"))["text"]


async def test_only_admins_define_conventions(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await world.planner.call("conventions.define", name="capa", groups=GROUPS)


async def test_unknown_conventions_and_sessions_are_not_found(world: World) -> None:
    with refused("CONVENTIONS_NOT_FOUND"):
        await world.planner.call("board.guidance", conventions="none")
    with refused("SESSION_NOT_FOUND"):
        await world.planner.call("board.guidance", session_id="none")


async def test_a_session_names_only_conventions_that_are_listed(world: World) -> None:
    await world.admin.call("conventions.define", name="capa", groups=GROUPS)
    with refused("CONVENTIONS_NOT_FOUND"):
        await world.planner.create_session("quality", conventions="kappa")
    with refused("SESSION_NOT_FOUND"):
        await world.planner.call("session.get", session_id="quality")


async def test_the_read_pattern_names_only_keys_of_the_conventions(world: World) -> None:
    groups = [{"title": "Case", "keys": [{"key": "phase_status", "purpose": "what is approved"}]}]
    await world.admin.call("conventions.define", name="case", groups=groups)
    await world.admin.call("conventions.define", name="capa", groups=GROUPS)
    texts = [
        (await world.analysis.call("board.guidance", conventions=name, part="reading"))["text"]
        for name in ("default", "case", "capa")
    ]
    assert ["decisions_made" in text for text in texts] == [True, False, False]
    assert ["phase_status" in text for text in texts] == [True, True, False]
    assert all("approved" in text for text in texts)
