"""The lifecycle of a record: a machine that goes wherever it is let, held against a table of all ways."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.full_run import examples
from weft.capabilities.records.vocabulary import IllegalTransition, Lifecycle, check_transition, next_states

STATES = get_args(Lifecycle)
ALLOWED = {
    "draft": "available selected assembled injected compacted redacted expired archived",
    "available": "selected assembled injected compacted redacted expired archived",
    "selected": "assembled injected compacted redacted expired archived",
    "assembled": "injected compacted redacted expired archived",
    "injected": "compacted redacted expired archived",
    "compacted": "redacted expired archived",
    "redacted": "assembled injected compacted expired archived",
    "expired": "archived",
    "archived": "",
}
pytestmark = pytest.mark.req("AC-03")


class Life(RuleBasedStateMachine):
    """A record that is asked to become anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.past: list[str] = ["draft"]

    @rule(wanted=st.sampled_from(STATES))
    def become(self, wanted: Lifecycle) -> None:
        allowed = ALLOWED[self.past[-1]].split()
        if wanted in allowed:
            check_transition(self.past[-1], wanted)
            self.past.append(wanted)
        else:
            with pytest.raises(IllegalTransition) as refusal:
                check_transition(self.past[-1], wanted)
            assert refusal.value.context["allowed"] == sorted(allowed)

    @invariant()
    def what_may_follow_is_what_the_table_says(self) -> None:
        assert next_states(self.past[-1]) == set(ALLOWED[self.past[-1]].split())

    @invariant()
    def nothing_begins_again_and_what_has_ended_only_is_kept(self) -> None:
        assert "draft" not in self.past[1:]
        ended = self.past.index("expired") if "expired" in self.past else len(self.past)
        assert set(self.past[ended + 1 :]) <= {"archived"}
        assert "archived" not in self.past[:-1]


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(200), stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("wanted", STATES)
def test_lifecycle_transitions_match_the_table(state: Lifecycle, wanted: Lifecycle) -> None:
    if wanted in ALLOWED[state].split():
        check_transition(state, wanted)
    else:
        with pytest.raises(IllegalTransition) as refusal:
            check_transition(state, wanted)
        assert refusal.value.context["lifecycle"] == state
        assert refusal.value.context["requested"] == wanted
