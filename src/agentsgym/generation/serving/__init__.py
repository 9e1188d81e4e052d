"""The APIs of OpenAI and Anthropic, in front of whatever answers calls of a model."""
