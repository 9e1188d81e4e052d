"""How a first prompt says the form of an action (`explain_actions`)."""


def with_form(prompt: str, form: str, example: str) -> str:
    """The prompt, then the form in one sentence and, as the last line, a legal example. Small
    models tend to continue from what they read last."""
    return f"{prompt}\n{form} For example:\n{example}"
