"""ExploreMany: games of many families, each task in a language of its own."""

import random
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import Field, field_validator

from agentsgym.envs.dataset import read_seed
from agentsgym.envs.exploration.base import (
    Case,
    ExplorationGame,
    ExplorationSettings,
    ExploreState,
    Noise,
    Question,
    Wording,
)
from agentsgym.envs.exploration.best_play import Claim, Inform, News, Plan
from agentsgym.envs.exploration.families import FAMILIES, Draft, drawn, families_of
from agentsgym.envs.exploration.language import PARTS, Language, Part
from agentsgym.envs.settings import Carry
from agentsgym.types.settings import NotNegative

_WORD = re.compile(r"\w+(?:-\w+)*")
SAME = "Same game."
Families = list[str]


class ExploreManySettings(ExplorationSettings):
    """Families are given by their names, or all of a part by the part's name."""

    max_steps_per_episode: int = Field(8, description="most actions of an episode; games have less")
    episodes_per_trial: int = Field(2, description="episodes on the same task")
    free_shots: int = Field(1, description="first episodes that are not scored")
    carry: Carry = "full"
    families: Families = Field(["train"], description="families of the training tasks")
    words: Part = Field("train", description="part of the words that training tasks use")
    patterns: Part = Field("train", description="part of the sentences that training tasks use")
    eval_families: Families = Field(["test"], description="families of the evaluation tasks")
    eval_words: Part = Field("test", description="part of the words that evaluation tasks use")
    eval_patterns: Part = Field("train", description="part of the sentences in evaluation tasks")
    spare_steps: int = Field(
        1, ge=0, le=4, description="most actions of a free shot beyond those that inform completely"
    )
    noise: list[Noise] = Field(
        [0.0], min_length=1, description="drawn per task: probability that a look's answer is wrong"
    )
    look_cost: list[NotNegative] = Field(
        [0.0], min_length=1, description="drawn per task: cost of each informing action"
    )

    @field_validator("families", "eval_families")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in FAMILIES and name not in PARTS:
                raise ValueError(f"must be of {', '.join((*PARTS, *FAMILIES))}, got {name!r}")
        return names


class DrawnWords(Wording):
    """A drawn game in words. Paid actions and informing ones begin with words of their own."""

    def __init__(self, draft: Draft, language: Language) -> None:
        looks = [f"{language.look} {name}" for name in draft.arguments] or [language.look]
        several = draft.facts > 1
        super().__init__(
            (f"{language.pay} {claim}" for claim in draft.claims),
            {look: Inform(k, 0) if several else Inform(0, k) for k, look in enumerate(looks)},
        )
        self._draft = draft
        self._reply = language.pattern("reply")
        self._about = language.pattern("about")
        lines = [*draft.lines, language.say("pay")]
        language.rng.shuffle(lines)
        self.rules = " ".join(lines)

    def key(self, text: str) -> tuple[str, ...]:
        return tuple(_WORD.findall(text.casefold()))

    def say_answer(self, answer: News, question: Question) -> str:
        if isinstance(answer.move, Claim):
            return "Right." if answer.value else "Wrong."
        said = self._draft.said[answer.move.query]
        return self._reply.format(said=said[min(answer.value, len(said) - 1)])

    def asks(self, question: Question) -> str:
        """What an episode asks for; "" if that is always the same."""
        several = self._draft.facts > 1
        return self._about.format(key=self._draft.arguments[question.fact]) if several else ""


@lru_cache(maxsize=20_000)
def _drawn_case(
    seed: int, family: str, words: Part, patterns: Part, settings: tuple[Any, ...]
) -> Case:
    """The game of a task."""
    weights, noises, costs, spare = settings
    rng = random.Random(f"language-{seed}-{family}")
    language = Language(rng, words, patterns)
    draft = drawn(FAMILIES[family], language)
    useful = sum(len(set(query)) > 1 for query in draft.queries)
    plan = Plan(
        queries=draft.queries,
        weights=weights,
        free_steps=useful * draft.facts + rng.randint(0, spare),
        facts=draft.facts,
        noise=rng.choice(noises),
        look_cost=rng.choice(costs),
    )
    return Case(plan, DrawnWords(draft, language))


class ExploreManyEnv(ExplorationGame):
    """Games of many families, each task in a language of its own: the names of things and actions,
    the sentences and their order, the number of choices and actions, costs and noise are drawn. So
    a prompt must be read to be played.

    `task_data` is `{"seed": int, "family": str, "words": str, "patterns": str}`. In the free shot
    an agent has enough actions to inform itself completely, in a scored episode one, which is
    paid. `info["informing"]` marks informing actions.
    """

    Settings = ExploreManySettings
    config: ExploreManySettings

    def _set_up(self) -> None:
        config = self.config
        self.reward_range = (0.0 - config.max_steps_per_episode * max(config.look_cost), 1.0)
        self._drawing = (
            self.shares,
            tuple(config.noise),
            tuple(config.look_cost),
            config.spare_steps,
        )

    def case(self, task_data: Mapping[str, Any]) -> Case:
        seed = read_seed(task_data)
        family, words, patterns = (task_data.get(key) for key in ("family", "words", "patterns"))
        if family not in FAMILIES or words not in PARTS or patterns not in PARTS:
            raise ValueError(
                f"task_data needs a 'family', and 'words' and 'patterns' ({', '.join(PARTS)}), got "
                f"{task_data!r}"
            )
        return _drawn_case(seed, family, words, patterns, self._drawing)

    def question(self, task_data: Mapping[str, Any], episode: int) -> Question:
        rng = random.Random(f"explore-{read_seed(task_data)}-{episode}")
        return Question(rng.randrange(self.case(task_data).plan.facts))

    def _format_prompt(self, state: ExploreState, step: int) -> str:
        trial = state["trial"]
        if step == 0 and trial.episode and trial.carry == "full":
            return self.first_prompt(state)
        return super()._format_prompt(state, step)

    def first_prompt(self, state: ExploreState) -> str:
        """The rules and what the episode asks for; the rules only once in a conversation."""
        case, trial = self.case(state["task"]), state["trial"]
        words: Any = case.wording
        kind = "Scored." if trial.scored else "Practice."
        asks = words.asks(state["question"])
        if trial.episode and trial.carry == "full":
            return " ".join(filter(None, (kind, SAME, asks)))
        plan = case.plan
        count = plan.actions(self.episode_of(state))
        lines = [kind, words.rules, asks]
        lines += [f"You have {count} actions."] if count > 1 else []
        lines += [f"Looking costs {plan.look_cost:g}."] if plan.look_cost else []
        lines += [f"It lies in {plan.noise:.0%} of the cases."] if plan.noise else []
        return " ".join(filter(None, lines))

    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        config = self.config
        chosen = config.eval_families if held_out else config.families
        families = [n for name in chosen for n in (families_of(name) if name in PARTS else [name])]
        words = config.eval_words if held_out else config.words
        patterns = config.eval_patterns if held_out else config.patterns
        for k, task in enumerate(super()._tasks(held_out)):
            family = families[k % len(families)]
            yield {**task, "family": family, "words": words, "patterns": patterns}
