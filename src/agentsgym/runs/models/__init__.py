"""The models of a run: loading, adapters, those of the package."""
