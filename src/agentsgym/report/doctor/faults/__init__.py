"""What a fault has beside its row of `faults.yaml`, in a file of its name: `find(evidence)`, what
shows it where no limit of a metric does, and `more(evidence)`, further evidence from rollouts."""
