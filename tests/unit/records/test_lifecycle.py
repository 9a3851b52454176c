"""The lifecycle of records, compared with a table of allowed transitions."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.full_run import examples
from weftline.records.vocabulary import IllegalTransition, Lifecycle, check_transition, next_states

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


class LifecycleMachine(RuleBasedStateMachine):
    """Random transitions of one record."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = ["draft"]

    @rule(new_state=st.sampled_from(STATES))
    def transition(self, new_state: Lifecycle) -> None:
        allowed = ALLOWED[self.states[-1]].split()
        if new_state in allowed:
            check_transition(self.states[-1], new_state)
            self.states.append(new_state)
        else:
            with pytest.raises(IllegalTransition) as refusal:
                check_transition(self.states[-1], new_state)
            assert refusal.value.context["allowed"] == sorted(allowed)

    @invariant()
    def next_states_match_the_table(self) -> None:
        assert next_states(self.states[-1]) == set(ALLOWED[self.states[-1]].split())

    @invariant()
    def draft_is_first_and_archived_is_last(self) -> None:
        assert "draft" not in self.states[1:]
        expired_at = self.states.index("expired") if "expired" in self.states else len(self.states)
        assert set(self.states[expired_at + 1 :]) <= {"archived"}
        assert "archived" not in self.states[:-1]


TestLifecycle = LifecycleMachine.TestCase
TestLifecycle.settings = settings(max_examples=examples(200), stateful_step_count=20, deadline=None)


def test_lifecycle_transitions_match_the_table() -> None:
    for state, new_state in product(STATES, STATES):
        if new_state in ALLOWED[state].split():
            check_transition(state, new_state)
        else:
            with pytest.raises(IllegalTransition) as refusal:
                check_transition(state, new_state)
            assert refusal.value.context["lifecycle"] == state
            assert refusal.value.context["requested"] == new_state
