"""Export and import of sessions as bundles, export policies, and PROV-JSON."""
