"""Warm start of a pretrained model as a phase of a run: its games, its files."""
