"""One file that holds everything: made from either database and either store of objects, restored into any.

The file is a zip. Each table is a stream of JSON lines, a row to a line in the order of the table's columns, blobs in
base64; each value that lies outside the database is a member named as its object. ``manifest.json``, written last,
names the schema the rows belong to and each table's row count and SHA-256. An object's is in its name.
"""

from weft.storage.backup.archive import Manifest
from weft.storage.backup.create import back_up
from weft.storage.backup.restore import restore

__all__ = ["Manifest", "back_up", "restore"]
