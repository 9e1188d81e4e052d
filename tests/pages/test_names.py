"""What pages name in running text exists: settings, options and files."""

import re

from agentsgym.cli.app import COMMANDS, loaded
from agentsgym.envs import find
from agentsgym.envs.builtin import KNOWN
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.settings import TrainSection
from pages.page_blocks import ROOT, pages

PAGE = (ROOT / "docs/settings.md").read_text("utf-8")
SETTINGS = set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE))
SECTIONS = ("train", "eval", "engine", "model", "data", "warm_start", "ray")
KEY = re.compile(rf"`({'|'.join(SECTIONS)})\.(\w+(?:\.\w+)*)(?![\w.(])")
FILE = re.compile(r"`((?!build/)[a-z][\w-]*(?:/(?!NAME)[\w.-]+)+\.(?:py|yaml|toml|md))`")
OPTION = re.compile(r"`(?:agentsgym [\w-]+ )?(--[a-z][\w-]*)")
# Options of vLLM, accelerate, Inspect, verifiers, and of the scripts of benchmarks and experiments.
FOREIGN = {"--enable-lora", "--max-loras", "--max-lora-rank", "--max-num-batched-tokens",
           "--no-enable-chunked-prefill", "--multi_gpu", "--main_process_port", "--message-limit",
           "--token-limit", "--no-push", "--beta", "--prove", "--gpu-memory-utilization", "--only",
           "--logprobs-mode", "--time-limit", "--dtype", "--return-sampling-mask"}  # fmt: skip
# Keys of a mapping, places for a name, functions.
OTHER = ("train.advantage_options.", "train.NAME", "engine.KEY", "ray.init")
SCRIPTS = ("benchmarks/", "experiments/")


def spans(pattern):
    """Every page with each match of a pattern in it."""
    texts = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in pages()}
    return sorted(
        {(page, found) for page, text in texts.items() for found in pattern.findall(text)}
    )


def test_every_setting_exists():
    of_training = {*GRPOEnvConfig.__dataclass_fields__, *TrainSection.model_fields}
    known = SETTINGS | {f"train.{name}" for name in of_training}
    known |= {name.removeprefix("warm_start.") for name in SETTINGS}  # named within their section
    named = [(page, ".".join(key)) for page, key in spans(KEY)]
    assert [one for one in named if one[1] not in known and not one[1].startswith(OTHER)] == []


def test_every_setting_of_an_environment_exists():
    known = {name for env in KNOWN for name in find(env, False).Settings.model_fields}
    named = spans(re.compile(r"`env_config\.(\w+)"))
    assert [one for one in named if one[1] not in known] == []


def test_every_option_is_one_of_a_command():
    commands = [loaded(name) for name in COMMANDS]
    known = {o for c in commands for p in c.params for o in (*p.opts, *p.secondary_opts)}
    known |= {"--help", "--debug", "--version", *FOREIGN}
    named = [one for one in spans(OPTION) if not one[0].startswith(SCRIPTS)]
    assert [one for one in named if one[1] not in known] == []


def test_every_file_exists():
    places = (ROOT, ROOT / "src", ROOT / "src/agentsgym")
    named = spans(FILE)
    assert [one for one in named if not any((place / one[1]).exists() for place in places)] == []


def test_messages_name_pages_by_their_titles():
    titles = {page.read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in pages()}
    source = "".join(
        path.read_text("utf-8")
        for kind in ("py", "yaml")
        for path in (ROOT / "src/agentsgym").rglob(f"*.{kind}")
    )
    named = re.findall(r"""docs_page\(["'](.+?)["']\)""", source)
    named += re.findall(r'"([\w ]+)" in the documentation', source)
    assert len(named) > 8 and set(named) <= titles
