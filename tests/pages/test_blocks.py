"""Every block of every page can be read, and every command exists."""

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from pages.page_blocks import ROOT, blocks, fenced_commands, quoted_commands

LANGUAGES = {"bash", "python", "yaml", "json", "sql", "text"}
# What a part of a run file in a page lacks to be one.
RUN = {"env": "Bandit", "model": "tiny"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_block_names_its_language():
    strange = [str(block) for block in blocks() if block.language not in LANGUAGES]
    assert not strange, f"begin these with ``` and one of {sorted(LANGUAGES)}: {strange}"


def test_python_can_be_read():
    for block in (b for b in blocks() if b.language == "python"):
        ast.parse(block.body, str(block))


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
    if program == "agentsgym":
        agentsgym_knows(words[1:])
    elif program == "make":
        make_knows(words[1:])
    elif program == "python" and words[1] != "-m":
        assert (ROOT / words[1]).is_file()
    elif program == "pip" and "[" in command:
        assert set(re.findall(r"\[([\w,]+)\]", command)[0].split(",")) <= set(EXTRAS)


def agentsgym_knows(words):
    """The command and each of its options."""
    from agentsgym.cli.app import loaded

    if words in (["--help"], ["COMMAND", "--help"]):
        return
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
