"""Paths of index files, and cleanup of unused ones: without numpy, which only searches need."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Suffix of damaged files that were set aside.
DAMAGED_SUFFIX = ".damaged"
_NAME_LENGTH = 24


def folder_name(name: str) -> str:
    """Return the folder name of a tenant, collection or model: a hash, because names may hold any character."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_NAME_LENGTH]


def damaged_files(root: Path) -> int:
    """Return the number of files below a folder that were set aside."""
    return sum(1 for _ in root.rglob(f"*{DAMAGED_SUFFIX}"))


def remove_unknown(root: Path, collections: Mapping[str, set[str]]) -> int:
    """Remove the files of all tenants and collections except these; return the number of removed collections."""
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
