"""The YAML files that ship with the package."""

from importlib.resources import files


def shipped_yaml(folder: str) -> dict[str, str]:
    """Name (without `.yaml`) and text of every YAML file in a folder of the package, by name."""
    found = {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in (files("agentsgym") / folder).iterdir()
        if entry.name.endswith(".yaml")
    }
    return dict(sorted(found.items()))
