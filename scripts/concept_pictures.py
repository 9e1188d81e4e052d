"""Draw the pictures of docs/concepts.md from the rollouts that examples/boxes.py plays.

python scripts/concept_pictures.py
"""

import runpy
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
EXAMPLE = "B"  # the rollout of the first picture
WIDTH = 760
LABELS = 138  # where tokens begin
LETTER = 7.3  # of the font, at most
STYLE = """
  text { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #24292f }
  .card { fill: #ffffff; stroke: #d0d7de }
  .head { font-weight: bold }
  .note { fill: #57606a }
  .zero { fill: #6e7781 }
  .context { fill: #eef1f4; stroke: #d0d7de }
  .agent { fill: #1f5fbf; stroke: #1f5fbf }
  .again { fill: none; stroke: #1f5fbf; stroke-width: 1.5 }
  .on-agent { fill: #ffffff }
  .more { fill: #cfe8d5 }
  .less { fill: #f9d9c9 }
  .none { fill: #eef1f4 }
  line { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #161b22; stroke: #30363d }
    .note { fill: #9da7b3 }
    .zero { fill: #7d8590 }
    .context { fill: #262c36; stroke: #3d444d }
    .agent { fill: #2f6fd0; stroke: #2f6fd0 }
    .again { stroke: #6ea3ee }
    .more { fill: #1f4d2c }
    .less { fill: #67321d }
    .none { fill: #262c36 }
    line { stroke: #30363d }
  }
"""


def pictures() -> dict[str, str]:
    """File name → SVG of each picture."""
    names = runpy.run_path(str(ROOT / "examples/boxes.py"))
    return {
        "concept-tokens.svg": tokens_picture(names),
        "concept-group.svg": group_picture(names),
        "concept-rows.svg": rows_picture(names),
    }


def tokens_picture(names: dict[str, Any]) -> str:
    """One rollout, a line for each action with the tokens read before it."""
    row = names["batch"].rows["ABC".index(EXAMPLE)]
    words = names["env"].tokenizer.convert_ids_to_tokens(list(row.token_ids))
    rewards = names["batch"]["per_token_rewards"]["ABC".index(EXAMPLE)]
    advantages = names["credit"].advantages(names["batch"], "trial")["ABC".index(EXAMPLE)]
    free_shots = names["trial"]["free_shots"]
    parts, top, start = [], 34, 0
    for span in row.spans:
        if span.step == 0:
            top += 14 if start else 0
            kind = "free shot" if span.episode < free_shots else "scored"
            parts += [text(16, top, f"episode {span.episode + 1}", "head")]
            parts += [text(16 + 10 * LETTER, top, f"{kind}", "note")]
            top += 12
        labels = ("mask", "reward", "advantage")
        parts += [
            text(LABELS - 10, top + 40 + 16 * k, t, "note", "end") for k, t in enumerate(labels)
        ]
        left = LABELS
        for k in range(start, span.stop):
            mine = bool(row.agent_token_mask[k])
            width = len(words[k]) * LETTER + 8
            width = max(width, 5.2 * LETTER) if mine else width
            numbers = (f"{int(mine)}", signed(rewards[k]), signed(advantages[k]))
            parts += token(left, top, width, words[k], mine)
            parts += [
                text(
                    left + width / 2, top + 40 + 16 * i, n, "" if n not in "0" else "zero", "middle"
                )
                for i, n in enumerate(numbers)
            ]
            left += width + 3
        start = span.stop
        top += 90
    return svg(top + 4, parts)


def group_picture(names: dict[str, Any]) -> str:
    """The steps of the group with what each earned and what two estimators pay it."""
    rollouts = names["batch"].rollouts
    paid = {"trial": names["by_trial"], "step_return": names["by_step_return"]}
    wide, left = 118, 136
    heads = ("free shot, 1", "free shot, 2", "scored, 1", "scored, 2")
    parts = [text(left + wide * k + 8, 30, head, "note") for k, head in enumerate(heads)]
    parts += [text(WIDTH - 16, 30, "final reward", "note", "end")]
    for number, rollout in enumerate(rollouts):
        top = 58 + 92 * number
        parts += [f'<line x1="16" y1="{top - 18}" x2="{WIDTH - 16}" y2="{top - 18}"/>']
        parts += [text(16, top, f"rollout {'ABC'[number]}", "head")]
        parts += [text(WIDTH - 16, top, signed(rollout.final_reward), "head", "end")]
        steps = [(e.index, s.index, s) for e in rollout.episodes for s in e.steps]
        for place, (episode, step, record) in enumerate(steps):
            x = left + wide * (2 * episode + step)
            parts += [text(x + 8, top, f"{record.action} {signed(record.reward):>5}")]
            for line, name in enumerate(paid):
                value = paid[name][number][place]
                kind = "more" if value > 0 else "less" if value < 0 else "none"
                y = top + 10 + 26 * line
                parts += [
                    f'<rect class="{kind}" x="{x}" y="{y}" width="{wide - 8}" height="22" rx="3"/>'
                ]
                parts += [text(x + (wide - 8) / 2, y + 15, signed(value), "", "middle")]
        for line, name in enumerate(paid):
            parts += [text(16, top + 25 + 26 * line, name, "note")]
    return svg(58 + 92 * len(rollouts) - 14, parts)


def rows_picture(names: dict[str, Any]) -> str:
    """The rows of the same actions under each setting, a square for each token."""
    parts, top = [], 32
    for setting, batch in names["played"].items():
        count = len(batch.rows)
        tokens = sum(len(row.token_ids) for row in batch.rows)
        label = f"{count} row{'s' if count > 1 else ''}, {tokens} tokens"
        parts += [text(16, top, setting, "head"), text(WIDTH - 16, top, label, "note", "end")]
        for number, row in enumerate(batch.rows):
            y = top + 12 + 24 * number
            parts += [text(16, y + 11, f"row {number + 1}"), text(72, y + 11, row.begins, "note")]
            words = names["env"].tokenizer.convert_ids_to_tokens(list(row.token_ids))
            for k, kind in enumerate(kinds(words, row.agent_token_mask)):
                x = LABELS + 14 * k
                parts += [f'<rect class="{kind}" x="{x}" y="{y}" width="11" height="14" rx="2"/>']
        top += 24 * count + 38
    y = top - 12
    legend = (
        ("context", "context"),
        ("agent", "agent token"),
        ("again", "sampled in an earlier row"),
    )
    x = LABELS
    for kind, label in legend:
        parts += [f'<rect class="{kind}" x="{x}" y="{y}" width="11" height="14" rx="2"/>']
        parts += [text(x + 17, y + 11, label, "note")]
        x += 40 + len(label) * LETTER
    return svg(y + 30, parts)


def kinds(words: Iterable[str], mask: Iterable[int]) -> Iterator[str]:
    """What each token is: context, of the agent, or of the agent in an earlier row."""
    answer = False
    for word, mine in zip(words, mask, strict=True):
        answer = answer and word != "<end>"
        yield "agent" if mine else "again" if answer else "context"
        answer = answer or word == "<agent>"


def token(left: float, top: float, width: float, word: str, mine: bool) -> list[str]:
    """A token in its box."""
    kind = "agent" if mine else "context"
    box = f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="22" rx="3"/>'
    return [box, text(left + width / 2, top + 15, word, f"on-{kind}", "middle")]


def signed(value: float) -> str:
    """The number with its sign and without needless zeros."""
    return f"{round(float(value), 3):+g}".replace("-", "−") if round(float(value), 3) else "0"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words at a place."""
    kind = f' class="{kind}"' if kind else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{where}>{escape(words)}</text>'


def svg(height: float, parts: Iterable[str]) -> str:
    """The whole picture, on a card of its own, which also has a dark form."""
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    card = (
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="6"/>'
    )
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{STYLE}</style>", card]
    return "\n".join([*lines, *parts, "</svg>", ""])


if __name__ == "__main__":
    for name, picture in pictures().items():
        (IMAGES / name).write_text(picture, encoding="utf-8")
