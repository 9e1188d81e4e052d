"""Advantage estimators: one file per family."""
