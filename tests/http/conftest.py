"""One real server for all of these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.team import Team, team_process

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team_process(tmp_path_factory.mktemp("team"), log_level="INFO") as team:
        yield team


@pytest.fixture(autouse=True)
def _time_to_note_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a model proxy that ends note all its calls: what tests read must not depend on how busy the machine is."""
    monkeypatch.setattr("weftline.transports.proxy.observer._STOP_SECONDS", 60.0)


@pytest.fixture
def session(team: Team) -> str:
    return team.new_session()
