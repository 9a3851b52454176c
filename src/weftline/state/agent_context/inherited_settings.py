"""Settings that an agent inherits: from its ancestors, its teams and the tenant, field by field."""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import structs


class InheritedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of such settings: every field is None unless it is set."""

    def over(self, other: Self) -> Self:
        """Return these settings, completed by others."""
        unset = [name for name in self.__struct_fields__ if getattr(self, name) is None]
        return structs.replace(self, **{name: getattr(other, name) for name in unset})
