"""Where the files of an index lie, and what becomes of those that nobody needs."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# What a damaged file that was set aside ends in.
ASIDE = ".damaged"
_NAME_LENGTH = 24


def folder_name(name: str) -> str:
    """Return what a tenant, collection or model is called in the file system, whatever its own name may hold."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_NAME_LENGTH]


def damaged_files(root: Path) -> int:
    """Return how many files below a folder were set aside."""
    return sum(1 for _ in root.rglob(f"*{ASIDE}"))


def remove_unknown(root: Path, collections: Mapping[str, set[str]]) -> int:
    """Remove the files of tenants and collections other than these; return of how many."""
    known = {
        folder_name(tenant): {folder_name(collection) for collection in names} for tenant, names in collections.items()
    }
    removed = 0
    for tenant in _folders(root):
        for collection in _folders(tenant):
            if collection.name not in known.get(tenant.name, set()):
                shutil.rmtree(collection, ignore_errors=True)
                removed += 1
        if tenant.name not in known:
            shutil.rmtree(tenant, ignore_errors=True)
    return removed


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
