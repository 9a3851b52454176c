"""Types of the parameters and results of all operations."""

from weftline.kernel.lazy_names import lazy_names
from weftline.kernel.operation_index import type_index

__all__ = sorted(type_index())  # noqa: PLE0605 - the stub lists them
__getattr__, __dir__ = lazy_names(globals(), type_index())
