"""The loss: rows of a batch, their log-probabilities, ratios and weights."""
