"""A search for inputs that do harm.

Hypothesis draws hostile cases; what counts as right is the same everywhere: it works, or it ends in
one clear sentence, and nothing is lost and nothing hangs. `make test` tries a few cases of each
area and `make fuzz` thousands, with long trainings that are killed and hit by faults.
"""
