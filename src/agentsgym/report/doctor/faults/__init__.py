"""What a fault has beside its row of `faults.yaml`: a function of its name. It returns what shows
the fault where no limit of a metric does (`Signs`, or None), and for a fault with such limits
further evidence from rollouts (lines)."""
