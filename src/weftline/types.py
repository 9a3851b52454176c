"""Types of the parameters and results of all operations."""

from weftline.kernel.data_files import lazy_names, type_index

__all__ = sorted(type_index())  # noqa: PLE0605 - the stub lists them
__getattr__, __dir__ = lazy_names(globals(), type_index())
