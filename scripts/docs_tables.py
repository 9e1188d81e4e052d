"""Write what the docs list of the code: docs/settings.md, docs/chat-templates.json, and tables
between two comments in other pages.

python scripts/docs_tables.py
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from agentsgym.checks.token_report import RecordedTalk, TokenReport
from agentsgym.checks.tokens import check_tokens
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.exploration.env import ExploreEnv
from agentsgym.report.doctor import FAULTS
from agentsgym.tokens import CallCheck, inspect_calls
from agentsgym.types.reward_placement import FINAL_REWARDS, REWARD_PLACEMENTS
from expectations import RandomPlayer, explored
from settings_page import settings_page

ROOT = Path(__file__).parents[1]


def environments() -> str:
    """The environments of the package with pages and extras; games of a family share a row."""
    rows = [
        (f"[`{env.name}`]({env.page}.md)", env.help, f"`{env.extra}`" if env.extra else "")
        for env in BUILTIN.values()
        if "/" not in env.name
    ]
    for (family, page, extra), games in _families().items():
        rows.append((f"[`{family}/NAME`]({page}.md)", f"{', '.join(games)}.", f"`{extra}`"))
    return _table(("environment", "what it is", "extra"), rows)


def _families() -> dict[tuple[str, ...], list[str]]:
    """The games of each family, such as those of `TextArena/NAME`, by its name, page and extra."""
    families: dict[tuple[str, ...], list[str]] = {}
    for env in BUILTIN.values():
        family, _, game = env.name.partition("/")
        if game:
            families.setdefault((family, env.page, str(env.extra)), []).append(game)
    return families


def environment_pages() -> str:
    """Links to the pages of the environments, for the index of the docs."""
    pages = dict.fromkeys(env.page for env in BUILTIN.values())
    titles = {page: _title(ROOT / f"docs/environments/{page}.md") for page in pages}
    return "".join(f"- [{title}](environments/{page}.md)\n" for page, title in titles.items())


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def faults() -> str:
    """The faults that `agentsgym doctor` names."""
    rows = ((f"`{name}`", kind.when) for name, kind in FAULTS.items())
    return _table(("fault", "named where"), rows)


def reward_placements() -> str:
    """The values of `reward_placement`."""
    rows = ((f'`"{name}"`', help) for name, help in REWARD_PLACEMENTS.items())
    return _table(("`reward_placement`", "where a step's reward r is put"), rows)


def final_rewards() -> str:
    """The values of `final_reward`."""
    rows = ((f'`"{name}"`', help) for name, help in FINAL_REWARDS.items())
    return _table(("`final_reward`", "which reward is placed"), rows)


def value_of_exploring() -> str:
    """What best play earns with and without informing actions, over settings of Explore."""
    head = ("`env_config`", "random", "best without exploring", "best", "informs, by episode")
    return _table(head, (_explored(config) for config in EXPLORED))


EXPLORED: tuple[Mapping[str, object], ...] = (
    {},
    {"episodes_per_trial": 4, "free_shots": 0},
    {"noise": 0.3, "free_shots": 4},
    {"facts": 2, "free_shots": 2},
    {"max_steps_per_episode": 2},
    {"episodes_per_trial": 1},
    {"game": "rule"},
    {"game": "switches"},
)


def _explored(config: Mapping[str, object]) -> tuple[str, ...]:
    env = ExploreEnv(None, config)
    players = (RandomPlayer(env.plan), env.player(informs=False), env.player())
    plays = [explored(env.plan, player) for player in players]
    shown = ", ".join(f"{key}={value}" for key, value in config.items())
    informs = ", ".join(f"{share:.2f}" for share in plays[-1].informing)
    return (f"`{shown}`" if shown else "the defaults", *(f"{f.score:.3f}" for f in plays), informs)


def chat_templates() -> str:
    """What is recorded with each chat template that TRL brings, as JSON: of conversations, and of
    calls of tools where it shows these, also with approximations of other templates."""
    sys.path.append(str(ROOT / "tests"))
    from call_templates import APPROXIMATE
    from chat_tokenizers import tokenizer_for

    reports = {name: _report(text) for name, text in _templates().items()}
    calls = {name: report.calls for name, report in reports.items()}
    calls |= {
        f"{name} (approximate)": inspect_calls(tokenizer_for(text))
        for name, text in APPROXIMATE.items()
    }
    found = {
        "conversations": {name: _recorded(report) for name, report in reports.items()},
        "tool calls": {name: _calls(one) for name, one in calls.items() if not one.fault},
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _calls(check: CallCheck) -> dict[str, str]:
    read = {(True, True): "yes", (True, False): "one in an answer"}
    return {
        "calls as in": check.families,
        "read as written": read.get((check.single, check.several), "no"),
        "call, result, next call": check.rewrites or "one row",
    }


@cache
def _templates() -> Mapping[str, str]:
    """The chat templates that TRL brings."""
    sys.path.append(str(ROOT / "tests"))
    import chat_tokenizers

    return {name: chat_tokenizers.template(name) for name in chat_tokenizers.ALL}


@cache
def _report(text: str) -> TokenReport:
    """The report on a chat template."""
    from chat_tokenizers import tokenizer_for

    return check_tokens(tokenizer_for(text))


def _recorded(report: TokenReport) -> dict[str, str]:
    by_name = {one.name: one for one in report.conversations}
    names = ("plain answers", "answers that think", "a system prompt")
    own = "a system prompt" if report.check.default_system_prompt else ""
    adds = [text for text in (own, "the date" if report.check.dated else "") if text]
    return {name: _rows_of(by_name.get(name)) for name in names} | {"adds": ", ".join(adds)}


def _rows_of(one: RecordedTalk | None) -> str:
    if one is None:
        return "the prompt turns thoughts off"
    if one.refused:
        return "refused"
    reasons = dict.fromkeys(rewrite.reason for rewrite in one.breaks)
    return f"{', '.join(reasons)} ({one.cost:.1f} ×)" if reasons else "one row"


TEMPLATES = "docs/chat-templates.json"

TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/README.md": {"environments": environment_pages},
    "docs/environments/README.md": {"environments": environments},
    "docs/environments/explore.md": {"the value of exploring": value_of_exploring},
    "docs/my-game-does-not-learn.md": {"faults": faults},
    "docs/credit-reference.md": {
        "reward placements": reward_placements,
        "final rewards": final_rewards,
    },
}
"""Page → name of the table in its comments → what makes it."""


def filled(page: str, text: str) -> str:
    """The page's text with its tables as the code has them. Raises LookupError for one that the
    page has no place for."""
    for name, make in TABLES[page].items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end of table: {name} -->"
        between = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not between.search(text):
            raise LookupError(f"{page} has no place for the table {name!r}: {begin.strip()}")
        made = f"{begin}{make()}{end}"
        text = between.sub(lambda _, made=made: made, text)
    return text


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |\n" for row in lines)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the chat templates are tried out, not used
    (ROOT / "docs/settings.md").write_text(settings_page(), encoding="utf-8")
    (ROOT / TEMPLATES).write_text(chat_templates(), encoding="utf-8")
    for page in TABLES:
        path = ROOT / page
        path.write_text(filled(page, path.read_text(encoding="utf-8")), encoding="utf-8")
