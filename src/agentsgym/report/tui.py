"""The viewer in a terminal, for a run on another machine: a list of rollouts, and one of them as a
conversation. Texts of models and tasks are shown with control characters as escapes."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Header, Input, Select, Static

from agentsgym.report.viewer.index import task_label
from agentsgym.report.viewer.rollout_set import RolloutSet
from agentsgym.report.viewer.source import Source
from agentsgym.runs.files import RolloutLine
from agentsgym.types import Episode, Rollout
from agentsgym.types.text import visible

_LONGEST = 20_000


class Viewer(App[None]):
    """The rollouts of one source, set by set."""

    CSS = """
    #list { width: 45%; }
    #what { height: 3; }
    #what Select { width: 50%; }
    #what Input { width: 50%; }
    #rollout { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("slash", "search", "search", key_display="/"),
        Binding("escape", "list", "list"),
    ]

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.title = f"agentsgym: {visible(source.name)}"
        self._sets = source.sets()
        self._lines: list[RolloutLine] = []
        self._shown: list[RolloutLine] = []

    def compose(self) -> ComposeResult:
        """A choice of sets and a search above the list; beside it the rollout."""
        yield Header()
        names = [(_name(one), number) for number, one in enumerate(self._sets)]
        with Horizontal(id="what"):
            yield Select(names, value=len(names) - 1, allow_blank=False, id="set")
            yield Input(placeholder="search the conversations", id="search")
        with Horizontal():
            yield DataTable(id="list", cursor_type="row")
            with VerticalScroll():
                yield Static(id="rollout")
        yield Footer()

    def on_mount(self) -> None:
        """Show the last set."""
        table = self.query_one("#list", DataTable)
        table.add_columns("group", "rollout", "reward", "actions", "task")
        self._open(self._sets[-1])
        table.focus()

    def on_select_changed(self, event: Select.Changed) -> None:
        """Another set."""
        if isinstance(event.value, int):
            self._open(self._sets[event.value])

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another search."""
        self._fill(event.value)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Back to the list."""
        self.action_list()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the rollout of this row."""
        if event.cursor_row < len(self._shown):
            self.query_one("#rollout", Static).update(conversation(self._shown[event.cursor_row]))

    def action_search(self) -> None:
        """Type a search."""
        self.query_one("#search", Input).focus()

    def action_list(self) -> None:
        """Move in the list."""
        self.query_one("#list", DataTable).focus()

    def _open(self, one: RolloutSet) -> None:
        contents = one.read()
        self._lines = contents.lines
        if contents.problem is not None:
            self.notify(visible(contents.problem), severity="warning", markup=False)
        self._fill(self.query_one("#search", Input).value)

    def _fill(self, wanted: str) -> None:
        table = self.query_one("#list", DataTable)
        table.clear()
        self._shown = [line for line in self._lines if says(line.rollout, wanted)]
        for line in self._shown:
            table.add_row(*map(Text, _cells(line.rollout)))
        if not self._shown:
            self.query_one("#rollout", Static).update("no rollout has this text" * bool(wanted))


def says(rollout: Rollout, wanted: str) -> bool:
    """Whether a text of the rollout contains `wanted`, in any case."""
    low = wanted.lower()
    steps = (step for episode in rollout.episodes for step in episode.steps)
    return low in task_label(rollout).lower() or any(
        low in text.lower() for step in steps for text in (step.observation, step.action)
    )


def conversation(line: RolloutLine) -> Text:
    """The rollout as text with styles and without markup."""
    rollout = line.rollout
    parts: list[tuple[str, str]] = [
        (f"group {rollout.group}, rollout {rollout.index}: {task_label(rollout)}\n", "bold")
    ]
    if rollout.error is not None:
        parts.append((f"failed: {rollout.error}\n", "bold red"))
    for episode in rollout.episodes:
        parts += _episode(episode, len(rollout.episodes))
    return Text.assemble(*((visible(text[:_LONGEST]), style) for text, style in parts))


def _episode(episode: Episode, count: int) -> list[tuple[str, str]]:
    shot = "" if episode.score_weight else ", a free shot"
    title = f"\nEpisode {episode.index + 1} of {count}{shot}: " if count > 1 else "\n"
    parts = [(f"{title}reward {episode.reward:.4g}, {episode.stop_reason}\n", "bold magenta")]
    for step in episode.steps:
        note = "note for the next episode" if step.kind == "reflection" else f"{step.index + 1}"
        told = f"[{note}] reward {step.reward:.4g}{' malformed' * step.malformed}"
        parts += [
            (f"\n{step.observation}\n", "cyan"),
            (f"{step.action}\n", ""),
            (f"{told}\n", "dim"),
        ]
    return parts


def _cells(rollout: Rollout) -> Sequence[str]:
    actions = sum(len(episode.actions) for episode in rollout.episodes)
    reward = "failed" if rollout.failed else f"{rollout.final_reward:.4g}"
    values: list[Any] = [rollout.group, rollout.index, reward, actions, task_label(rollout)]
    return [visible(str(value)) for value in values]


def _name(one: RolloutSet) -> str:
    return visible(f"{one.phase} {one.step}" + (f" {one.dataset}" if one.dataset else ""))
