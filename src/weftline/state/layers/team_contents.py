"""What teams own: guidelines (layer:team:NAME), memory and budgets."""

from __future__ import annotations

import msgspec

from weftline.access.teams.model import TeamContent
from weftline.indexing.collections.model import MEMORY
from weftline.indexing.collections.sql import CollectionStore
from weftline.kernel.identity import TEAM
from weftline.models.budgets.model import PERIODS, BudgetName
from weftline.models.budgets.sql import BudgetStore
from weftline.state.agent_context.model import ContextLine
from weftline.state.agent_context.service import Contexts
from weftline.state.layers.model import line_of, team_layer
from weftline.state.layers.store import LayerStore


class LayersAndMemoryOfTeams(msgspec.Struct, frozen=True):
    """Implements TeamContents."""

    contexts: Contexts
    layers: LayerStore
    collections: CollectionStore
    budgets: BudgetStore

    async def of(self, team: str) -> TeamContent:
        memory = await self.contexts.lines.find(_memory_of(team).line_id)
        layer = await self.contexts.lines.find(line_of(team_layer(team)))
        return TeamContent(
            memory_version=memory.head.seq if memory else 0,
            memory_bytes=memory.head.weight if memory else 0,
            # The weight of a layer is the size of what it holds.
            layer_version=layer.head.seq if layer and layer.head.weight else 0,
        )

    async def erase(self, team: str) -> None:
        memory = _memory_of(team)
        await self.contexts.erase(memory.owner)
        await self.collections.lock(MEMORY)
        await self.collections.remove_place(MEMORY, memory.line_id)
        await self.contexts.lines.erase(line_of(team_layer(team)))
        await self.layers.remove(team_layer(team))
        for period in PERIODS:
            await self.budgets.delete(BudgetName(f"{TEAM}{team}", period))


def _memory_of(team: str) -> ContextLine:
    return ContextLine(f"{TEAM}{team}", None, None)
