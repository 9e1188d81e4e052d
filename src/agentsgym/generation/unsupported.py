"""The error of an engine that cannot run a model; light to import."""


class UnsupportedModelError(ValueError):
    """The model needs a feature that the embedded engine lacks; the message says which engines
    may have it. `reason` is the message without that advice."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}; the plain engine runs it slower: leave engine out or set it to plain; vLLM "
            "may run it: set engine_urls or use_vllm (docs/engines.md)"
        )
