"""A search for inputs that do harm.

Hypothesis draws hostile cases; the oracle is the same everywhere: it works, or it ends in one clear
sentence, and nothing is lost, nothing hangs and no process is left. `python -m fuzz` (with tests/
on the path; `make fuzz`) runs thousands of cases, `test_fuzz.py` a few of each area.
"""
