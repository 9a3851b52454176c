"""Every error that a call can end with; weftline.kernel.errors defines the base classes."""

from weftline.kernel.data_files import error_index, lazy_names

__all__ = sorted(error_index())  # noqa: PLE0605 - the stub lists them
__getattr__, __dir__ = lazy_names(globals(), {name: error["module"] for name, error in error_index().items()})
