"""Environments in processes of this machine (`env_config.workers`)."""
