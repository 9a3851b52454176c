"""What teams own: guidelines (layer:team:NAME) and memory."""

from __future__ import annotations

import msgspec

from weft.capabilities.history.store import LineStore
from weft.capabilities.layers.model import line_of, team_layer
from weft.capabilities.layers.store import LayerStore
from weft.capabilities.teams.model import TeamContent


class LayersAndMemoryOfTeams(msgspec.Struct, frozen=True):
    """Implements TeamContents."""

    lines: LineStore
    layers: LayerStore

    async def of(self, team: str) -> TeamContent:
        layer = await self.lines.find(line_of(team_layer(team)))
        # The weight of a layer is the size of its text.
        return TeamContent(layer_version=layer.head.seq if layer and layer.head.weight else 0)

    async def erase(self, team: str) -> None:
        await self.lines.erase(line_of(team_layer(team)))
        await self.layers.remove(team_layer(team))
