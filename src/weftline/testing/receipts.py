"""Receipts for tests and benchmarks."""

from __future__ import annotations

from weftline.prompts.assembly.receipts import (
    Confidence,
    CountingMethod,
    Receipt,
    ReceiptBlock,
    Savings,
    TokenLimits,
)

SHARED, OWN, TOOLS = "aa" * 32, "bb" * 32, "cc" * 32


def receipt(receipt_id: str, created_at: int, *, agent_id: str = "a", session_id: str = "s", own: str = OWN) -> Receipt:
    """Return a receipt whose prompt has a block that others share, and one of its own."""
    return Receipt(
        receipt_id=receipt_id,
        session_id=session_id,
        agent_id=agent_id,
        requested_by=agent_id,
        created_at=created_at,
        previous_id=None,
        model="m",
        task_digest="",
        mode="first",
        reason="für den Anfang",
        modelled=None,
        limits=TokenLimits(
            limit=100, token_budget=None, window_tokens=100, model_tokens=120, reserved_output_tokens=20
        ),
        counting=CountingMethod(exact=False, factor=1.0, margin=1.1, learned=False, raw_tokens=70),
        tokens=80,
        tools_tokens=0,
        tools_digest=TOOLS,
        blocks=(
            ReceiptBlock(block_id="layers", kind="layer", digest=SHARED, tokens=30, cache_point=True),
            ReceiptBlock(block_id="task", kind="task", digest=own, tokens=50, items={"task:1": ""}),
        ),
        candidates=(),
        omitted=(),
        shortened=(),
        versions={},
        window_tokens={},
        window_budgets={},
        confidence=Confidence(confidence=None, widened=False, fallback=None, pending_documents=0, pending_events=0),
        savings=Savings(
            naive_baseline_tokens=200,
            document_tokens=300,
            engine_assembled_tokens=80,
            savings_ratio=0.6,
            savings_ratio_with_documents=0.84,
            cached_tokens=10,
            naive_cached_tokens=0,
            cost=0.25,
            naive_cost=1.0,
        ),
        prompt_hash="sha256:",
        max_output_tokens=20,
        timing_ms={"plan": 1.5},
    )
