"""Programs that call a model as no agent should, several at once."""

import functools
import threading
import time
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.envs.program.run import program_server
from chat_tokenizers import template, tokenizer_for
from fuzz.calls_oracle import check_row, expected_rows
from fuzz.hostile_program import CLOSED_KEYS, Called, HostileProgram, Notes
from fuzz.oracle import Area
from noise_engine import NoiseEngine, Sampled, noise

TOKENIZER = tokenizer_for(template("qwen2_5"), "<|im_end|>")
PROGRAMS = 8  # at once
MOST_CALLS = 20
MOST_TOKENS = 12
STEPS = ("open", "go_on", "several", "edit", "drop", "branch", "repeat", "echo", "tools",
         "parallel", "leave", "cut")  # fmt: skip
OTHERS = ("reward", "garbage", "noise", "key", "elsewhere")
ENDS = ("number", "list", "long list", "dict", "none", "nan", "huge", "text", "raise", "exit",
        "interrupt", "hammer")  # fmt: skip
FAILS = {
    "long list": "info['step_rewards'] has",
    "none": "must return a reward",
    "nan": "must be a finite number",
    "huge": "must be a finite number",
    "text": "must return a reward",
    "raise": "RuntimeError: broken",
    "exit": "SystemExit: 3",
    "interrupt": "KeyboardInterrupt",
}


@dataclass(frozen=True)
class Script:
    """What a program does, and how it ends."""

    moves: list[tuple[str, int]]
    end: str


MOVES = st.tuples(st.sampled_from(STEPS * 4 + OTHERS * 3 + ("huge",)), st.integers(0, 999))
SCRIPTS = st.lists(
    st.builds(
        Script,
        st.lists(MOVES, min_size=0, max_size=14),
        st.sampled_from(("number", "list", "dict") * 4 + ENDS),
    ),
    min_size=PROGRAMS,
    max_size=PROGRAMS,
)


@functools.cache
def _env() -> "_Programs":
    return _Programs(TOKENIZER, {"max_steps_per_episode": MOST_CALLS, "time_limit": 100.0})


class _Programs(ProgramEnv):
    """Plays the scripts of a case; `notes` has what each program did, by its number."""

    scripts: list[Script]
    notes: list[Notes]
    engine: NoiseEngine
    names: dict[int, str]

    def begin(self, scripts: list[Script]) -> None:
        """Play these next."""
        self.scripts, self.engine = scripts, NoiseEngine(TOKENIZER)
        self.notes, self.names = [Notes() for _ in scripts], {}

    def run(self, task: dict[str, Any], client: Any) -> Any:
        """Play one."""
        number = task["number"]
        self.names[number] = client.session_id
        script = self.scripts[number]
        program = HostileProgram(self.engine, client, self.notes[number])
        try:
            return program.play(
                script.moves, script.end, lambda: self.names.get((number + 1) % len(self.scripts))
            )
        finally:
            CLOSED_KEYS[:] = [*CLOSED_KEYS[-9:], client.api_key] if self.notes[number].over else []
            self.notes[number].ended.set()


def check(scripts: list[Script]) -> bool:
    """Each program's rollout is the one that its calls make, whatever the others did."""
    env = _env()
    before = _open()
    env.begin(scripts)
    agent = DirectOutputAgent(env.engine, SamplingParams(max_tokens=MOST_TOKENS))
    tasks = [{"number": number} for number in range(len(scripts))]
    rollouts = env.run_trial(tasks, agent).rollouts
    for script, notes, rollout in zip(scripts, env.notes, rollouts, strict=True):
        assert notes.ended.wait(20)
        assert not notes.wrong, notes.wrong
        _check_rollout(script, notes, rollout, env.engine.sampled[rollout.session_id])
    _nothing_stays(before)
    return not any(rollout.failed for rollout in rollouts)


def _check_rollout(script: Script, notes: Notes, rollout: Any, sampled: list[Sampled]) -> None:
    before = 0
    for answer in sampled:
        ids, logprobs = noise(TOKENIZER, rollout.seed, before, MOST_TOKENS)
        assert (answer.ids, answer.logprobs) == (tuple(ids), tuple(logprobs))
        before += len(ids)
    calls = _in_order(notes, sampled)
    expected = expected_rows(TOKENIZER, calls, sampled)
    failed = not notes.over and script.end in FAILS
    (episode,) = rollout.episodes
    if failed:
        assert FAILS[script.end] in rollout.error, rollout.error
        assert rollout.agent_tokens == 0
        return
    assert rollout.error is None, rollout.error
    assert len(episode.steps) == len(calls)
    assert episode.stop_reason == ("max_steps" if notes.over else "done")
    assert [step.reward for step in episode.steps] == _rewards(script, notes, len(calls))
    assert rollout.agent_tokens == before
    assert len(rollout.rows) == len(expected)
    for row, one in zip(rollout.rows, expected, strict=True):
        check_row(row, one, sampled)


def _in_order(notes: Notes, sampled: list[Sampled]) -> list[Called]:
    """The calls as the engine got them; the program knows the order but for parallel ones."""
    calls: list[Called] = []
    for one in notes.calls:
        group = one if isinstance(one, list) else [one]
        by_text = {called.messages[-1]["content"]: called for called in group}
        here = sampled[len(calls) : len(calls) + len(group)]
        calls += [by_text[answer.asked] for answer in here]
    assert len(calls) == len(sampled) == min(notes.count, MOST_CALLS)
    for called, answer in zip(calls, sampled, strict=True):
        said = TOKENIZER.decode([i for i in answer.ids if i != TOKENIZER.eos_token_id])
        assert called.answer in (None, said)
    return calls


def _rewards(script: Script, notes: Notes, count: int) -> list[float]:
    rewards = [notes.posted.get(number, 0.0) for number in range(1, count + 1)]
    if notes.over:
        return rewards
    result = notes.result
    if isinstance(result, list):
        return [a + b for a, b in zip(rewards, result, strict=True)]
    rewards[-1] += result["reward"] if isinstance(result, dict) else result
    return rewards


def _nothing_stays(before: set[Any]) -> None:
    server, until = program_server(), time.monotonic() + 20
    while time.monotonic() < until and not _open() <= before:
        time.sleep(0.002)
    assert _open() <= before
    assert not server._runs and not any(server._exchanges._kept.values())


def _open() -> set[Any]:
    """The threads of programs, and the connections to their endpoint."""
    threads = {one for one in threading.enumerate() if one.name == "agentsgym-program"}
    return threads | set(program_server()._server._server.server_state.connections)


AREA = Area("programs", SCRIPTS, check, cost=4.0)
