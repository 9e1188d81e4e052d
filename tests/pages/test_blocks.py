"""Every block of every page is of a kind that some test runs or reads, and every command exists."""

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from pages.page_blocks import ROOT, blocks, fenced_commands, pages, quoted_commands

LANGUAGES = {"bash", "python", "yaml", "json", "text"}
# Blocks of text that are no transcript of the page's own code.
TEXTS = {
    "README.md": "what `make demo` printed",
    "docs/architecture.md": "the way of a task to the loss",
    "docs/doctor.md": "a part of what the run of cli/test_doctor_command.py is told",
    "docs/environments/alfworld.md": "a recorded game, with settings that the page names",
    "docs/environments/textworld.md": "a recorded game, with settings that the page names",
    "docs/quickstart.md": "what a run of minutes printed",
    "docs/scaling.md": "who runs where, and formulas that experiments/step_time.py computes",
    "docs/environments/twenty-questions.md": "played again by checks/test_docs.py",
}
# What a part of a run file in a page lacks to be one.
RUN = {"env": "Bandit", "model": "tiny"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_block_names_its_language():
    strange = [str(block) for block in blocks() if block.language not in LANGUAGES]
    assert not strange, (
        f"begin these with ```bash, ```python, ```yaml, ```json or ```text: {strange}"
    )


def test_python_can_be_read():
    for block in (b for b in blocks() if b.language == "python"):
        ast.parse(block.body, str(block))


def test_no_command_hides_in_an_indented_block():
    indented = re.compile(r"^ {4,}(?:agentsgym|make|python|pip) \S+.*", re.MULTILINE)
    for path in pages():
        prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not indented.findall(prose), f"{path}: put it between ```bash and ```"


def test_every_text_is_a_transcript_or_excused():
    from checks.test_docs import PAGES

    with_text = {block.page for block in blocks() if block.language == "text"}
    assert with_text - set(TEXTS) <= {f"docs/{page}" for page in PAGES}
    assert set(TEXTS) <= with_text


# The suite is played by test_readme.py; Axolotl's file is read by test_axolotl_section.py.
OTHER = ("games:", "base_model:")
RUNS = [b for b in blocks() if b.language == "yaml" and not b.body.startswith(OTHER)]


@pytest.mark.parametrize("block", RUNS, ids=str)
def test_yaml_is_of_a_run(block):
    from agentsgym.runs.settings import parse_config

    assert parse_config({**RUN, **yaml.safe_load(block.body)})


@pytest.mark.parametrize("block", [b for b in blocks() if b.language == "json"], ids=str)
def test_json_is_json(block):
    assert json.loads(block.body)


def commands_of_all_pages():
    fenced = ((str(block), command) for command, block in fenced_commands().items())
    return sorted({*fenced, *quoted_commands()})


@pytest.mark.parametrize("page, command", commands_of_all_pages())
def test_what_a_command_names_exists(page, command):
    command = re.sub(r"^([A-Z_]+=\S+ )+", "", command)
    words = [word for word in shlex.split(re.sub(r"\[(--.+?)\]", r"\1", command)) if word != "…"]
    program = Path(words[0]).name
    check = {"agentsgym": agentsgym_knows, "make": make_knows, "python": script_knows}
    if program in check:
        check[program](words[1:])
    elif program == "pip" and "[" in command:
        assert set(re.findall(r"\[([\w,]+)\]", command)[0].split(",")) <= set(EXTRAS)


def agentsgym_knows(words):
    """The command and each of its options."""
    from agentsgym.cli.app import loaded

    command = loaded(words[0])
    known = {"--help", "--debug", *(o for p in command.params for o in p.opts)}
    known |= {o for p in command.params for o in p.secondary_opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def make_knows(words):
    """The target, and the files that ARGS names."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE)
    for path in re.findall(r"[\w/.]+", " ".join(words[1:]).removeprefix("ARGS=")):
        assert "/" not in path or (ROOT / path).exists(), path


def script_knows(words):
    """The script and each of its options."""
    if words[0] == "-m":
        return
    script = (ROOT / words[0]).read_text(encoding="utf-8")
    helpers = "".join(
        (ROOT / words[0]).with_name(f"{name}.py").read_text(encoding="utf-8")
        for name in _imports(script)
        if (ROOT / words[0]).with_name(f"{name}.py").exists()
    )
    for option in (word for word in words[1:] if word.startswith("--")):
        assert f'"{option}"' in script + helpers, option


def _imports(script):
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
