"""Backup and restore: one file with all data, independent of the database and the object store in use.

The file is a zip. Each table is a member with one JSON array per line, in column order, blobs in base64; each object is
a member named by its path. ``manifest.json``, written last, has the schema version and the row count and SHA-256 of
each table. The SHA-256 of an object is in its path.
"""

from weftline.storage.backup.archive import Manifest
from weftline.storage.backup.create import back_up
from weftline.storage.backup.restore import restore

__all__ = ["Manifest", "back_up", "restore"]
