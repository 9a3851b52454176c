"""The composition root: settings, storage, providers and registry become one App that every face calls."""
