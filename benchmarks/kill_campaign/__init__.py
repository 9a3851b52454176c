"""The load of the kill campaign: what it does, what was acknowledged, and whether it is found afterwards."""
