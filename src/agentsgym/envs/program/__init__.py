"""Any program that calls a model, as an environment."""
