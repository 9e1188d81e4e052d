"""Programs as environments: their calls are steps; rewards, conversations, faults, commands."""

import json
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx
import psutil
import pytest

from agentsgym import DirectOutputAgent, make
from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs.files.rollouts import RolloutWriter, read_rollouts
from agentsgym.types import SamplingParams
from envs.program.programs import CALL, TOKENIZER, ask, program
from helpers import random_llama
from rollout.doubles import TextEngine


@pytest.fixture(scope="module")
def model():
    return random_llama(TOKENIZER)


@pytest.fixture
def agent(model):
    return DirectOutputAgent(EmbeddedEngine(model, TOKENIZER), SamplingParams(max_tokens=8))


def rollout_of(env, agent, task=None, **options):
    (rollout,) = env.run_trial([task or {}], agent, **options).rollouts
    return rollout


def last_line(rollout):
    return rollout.error.strip().splitlines()[-1]


# -- rewards -------------------------------------------------------------------------------------


def test_a_number_is_the_reward_of_the_last_step(agent):
    def play(task, client):
        ask(client, "One?")
        ask(client, "Two?")
        return task["worth"]

    (episode,) = rollout_of(program(play), agent, {"worth": 3}).episodes
    assert [step.reward for step in episode.steps] == [0.0, 3.0] and episode.stop_reason == "done"


def test_posted_rewards_belong_to_the_last_answered_call(agent):
    def play(task, client):
        for reward in (0.25, 0.5):
            ask(client, "Go on?")
            url = f"{client.session_url}/reward"
            assert httpx.post(url, json={"reward": reward}).status_code == 200
            assert httpx.post(url, json={"reward": reward}).status_code == 200
        return 1.0

    (episode,) = rollout_of(program(play), agent).episodes
    assert [step.reward for step in episode.steps] == [0.5, 2.0]


class NumberEngine(TextEngine):
    """Says how many answers there were, in white space."""

    said = 0

    def answer(self, request):
        self.said += 1
        self.text = f" {self.said}\n<|im_end|>"
        return super().answer(request)


class AfterFirst(TextEngine):
    """Samples the second answer when `posted` is set."""

    def __init__(self):
        super().__init__(TOKENIZER)
        self.answers, self.posted = 0, threading.Event()

    def answer(self, request):
        self.answers += 1
        assert self.answers == 1 or self.posted.wait(20)
        return super().answer(request)


@pytest.mark.parametrize(
    ("result", "rewards"), [(4.0, [1.0, 4.0]), ([2.0, 4.0], [3.0, 4.0]), (None, [1.0, 0.0, 0.0])]
)
def test_a_reward_that_is_posted_while_another_call_waits_belongs_to_the_answered_one(
    result, rewards
):
    engine = AfterFirst()

    def play(task, client):
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(ask, client, text) for text in ("A?", "B?")]
            wait(both, return_when=FIRST_COMPLETED)
            httpx.post(f"{client.session_url}/reward", json={"reward": 1.0}).raise_for_status()
            engine.posted.set()
            wait(both)
        return result if result is not None else ask(client, "C?") and 0.0

    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=8))
    (episode,) = rollout_of(program(play), agent).episodes
    assert [step.reward for step in episode.steps] == rewards


def test_a_reward_before_the_first_answer_is_refused(agent):
    def play(task, client):
        answer = httpx.post(f"{client.session_url}/reward", json={"reward": 1.0})
        ask(client, "Go?")
        return float(answer.status_code)

    assert rollout_of(program(play), agent).final_reward == 400.0


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0, 2.0, 3.0], "info['step_rewards'] has 3 entries, the episode 1 steps"),
        (None, "must return a reward"),
    ],
)
def test_a_result_that_is_no_reward_fails_the_rollout(agent, result, message):
    def play(task, client):
        ask(client, "Go?")
        return result

    assert message in last_line(rollout_of(program(play), agent))


# -- conversations -------------------------------------------------------------------------------


def told(client, *messages):
    """Call the model with these messages; they and its answer."""
    body = {"model": "any", "messages": messages}
    answer = httpx.post(f"{client.session_url}/v1/chat/completions", json=body, timeout=60)
    return [*messages, {"role": "assistant", "content": content_of(answer)}]


def content_of(answer):
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"].strip()


def test_the_conversations_of_a_program_that_branches_are_those_that_it_had(tmp_path):
    def user(text):
        return {"role": "user", "content": text}

    had = []

    def play(task, client):
        main = told(client, {"role": "system", "content": "Rules."}, user("A?"))
        had.append([*main])
        helper = told(client, user("Help?"))
        had.append([*helper])
        had.append(told(client, *main, user("B?")))
        had.append(told(client, *helper, user("More?")))
        had.append(told(client, *main, user("C?"), user("D?")))
        return 1.0

    engine = NumberEngine(TOKENIZER)
    batch = program(play).run_trial([{}], DirectOutputAgent(engine), return_all_steps=True)
    (rollout,) = batch.rollouts
    plain = [
        [{**m, "content": m["content"].strip()} for m in talk] for talk in batch["messages"][0]
    ]
    assert plain == had
    assert batch["final_completion_messages"][0] == batch["messages"][0][-1]
    talks = [[step.index for _, step, _ in turns] for _, turns in rollout.conversations()]
    assert talks == [[0, 2], [1, 3], [4]]
    RolloutWriter(tmp_path)([rollout], {"phase": "train", "step": 0})
    assert list(read_rollouts(tmp_path)) == [rollout]


# -- trials --------------------------------------------------------------------------------------


def test_the_episodes_of_a_trial_are_runs_that_know_the_earlier_outcomes(agent):
    def play(task, client):
        ask(client, "Go?")
        return {"reward": 1.0 + len(client.trial.outcomes), "win": True}

    env = program(play, episodes_per_trial=3, free_shots=1)
    rollout = rollout_of(env, agent)
    assert [episode.reward for episode in rollout.episodes] == [1.0, 2.0, 3.0]
    assert [episode.score_weight for episode in rollout.episodes] == [0.0, 1.0, 1.0]
    assert [row.begins for row in rollout.rows] == ["episode"] * 3
    assert rollout.final_reward == 2.5


def test_with_carry_full_a_later_run_continues_the_conversation(agent):
    talk = []

    def play(task, client):
        talk.append({"role": "user", "content": "Go?"})
        body = {"model": "any", "messages": talk}
        answer = httpx.post(f"{client.session_url}/v1/chat/completions", json=body).json()
        talk.append(answer["choices"][0]["message"])
        return 1.0

    rollout = rollout_of(program(play, episodes_per_trial=2, carry="full"), agent)
    (row,) = rollout.rows
    assert [span.key for span in row.spans] == [(0, 0), (1, 0)]


# -- faults --------------------------------------------------------------------------------------


def test_a_program_that_raises_fails_alone(agent):
    def play(task, client):
        ask(client, "Go?")
        if task["bad"]:
            raise RuntimeError("the oven is cold")
        return 1.0

    tasks = [{"bad": False}, {"bad": True}, {"bad": False}]
    good, bad, other = program(play).run_trial(tasks, agent).rollouts
    assert good.final_reward == other.final_reward == 1.0
    assert last_line(bad) == "RuntimeError: the oven is cold"
    assert "the program failed after 1 calls" in bad.error and bad.agent_tokens == 0


def test_a_program_that_never_calls_the_model_fails(agent):
    rollout = rollout_of(program(lambda task, client: 1.0), agent)
    assert "the program ended without a call of the model" in last_line(rollout)


def test_a_program_that_hangs_fails_after_its_time(agent):
    def play(task, client):
        ask(client, "Go?")
        time.sleep(60)

    rollout = rollout_of(program(play, time_limit=0.5), agent)
    assert "made 1 calls of the model and did not end within time_limit=0.5 s" in rollout.error


def test_a_program_that_goes_on_calling_is_stopped(agent):
    refused = []

    def play(task, client):
        ask(client, "Go?")
        while True:
            try:
                ask(client, "And now?")
            except httpx.HTTPStatusError as error:
                refused.append(error.response.json()["error"])
                raise

    (episode,) = rollout_of(program(play, max_steps_per_episode=3), agent).episodes
    assert (len(episode.steps), episode.stop_reason) == (3, "max_steps")
    until = time.monotonic() + 10
    while not refused and time.monotonic() < until:
        time.sleep(0.01)
    assert refused[0]["code"] == "session_over"


# -- commands ------------------------------------------------------------------------------------

COMMAND = """
import json, os, openai
api = openai.OpenAI()
task = json.loads(os.environ["AGENTSGYM_TASK"])
for question in task["questions"]:
    api.chat.completions.create(
        model=os.environ["AGENTSGYM_MODEL"], messages=[{"role": "user", "content": question}]
    )
print("some output")
print(len(task["questions"]))
"""


def test_a_command_is_a_program_here_and_in_a_worker_process(agent, tmp_path):
    path = tmp_path / "agent.py"
    path.write_text(COMMAND)
    config = {"command": [sys.executable, str(path)]}
    task = {"questions": ["One?", "Two?"]}
    here = rollout_of(make("Program", TOKENIZER, config), agent, task)
    assert here.error is None
    (episode,) = here.episodes
    assert [step.reward for step in episode.steps] == [0.0, 2.0]
    assert episode.steps[-1].info["output"] == "some output\n2\n"
    assert [row.begins for row in here.rows] == ["episode", "conversation"]
    there = rollout_of(make("Program", TOKENIZER, config | {"workers": 1}), agent, task)
    assert there.error is None and there.episodes == here.episodes
    assert [row.token_ids.tolist() for row in there.rows] == [
        row.token_ids.tolist() for row in here.rows
    ]


def shell(script, **config):
    return make("Program", TOKENIZER, {"command": ["sh", "-c", script], **config})


def test_the_reward_may_stand_in_a_file(agent):
    script = CALL + 'echo \'{"reward": [0.5], "win": true}\' > $AGENTSGYM_REWARD_FILE; echo bye'
    (episode,) = rollout_of(shell(script), agent).episodes
    assert (episode.reward, episode.win) == (0.5, True)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (CALL + "echo oops >&2; exit 3", "exit status 3\noops"),
        (CALL + "kill -9 $$", "exit status"),
        (CALL + "echo fine", "its last line must be the reward"),
        ("exit 4", "exit status 4"),
        ("no-such-program-here", "not found"),
    ],
)
def test_a_command_that_fails_says_how(agent, script, message):
    assert message in rollout_of(shell(script), agent).error


def test_a_command_that_hangs_is_ended_with_its_children(agent, tmp_path):
    script = f"{CALL} sleep 600 & echo $! > {tmp_path}/pid; sleep 600"
    rollout = rollout_of(shell(script, time_limit=1.0), agent)
    assert "did not end within time_limit=1 s" in rollout.error
    pid, until = int((tmp_path / "pid").read_text()), time.monotonic() + 15
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"command": ["true"], "function": "os.getcwd"},
        {"command": ["true"], "carry": "summary"},
        {"command": ["true"], "context_limit": 400},
        {"command": ["true"], "programs": 5000},
    ],
)
def test_settings_that_name_no_single_program_are_refused(config):
    with pytest.raises(ConfigError, match="Program: "):
        make("Program", None, config)


def test_tasks_come_from_a_file(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(3)))
    env = make("Program", None, {"command": ["true"], "tasks": str(path)})
    assert env.get_train_dataset()["task_data"] == [{"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(ConfigError, match="eval_tasks must name a file"):
        env.get_eval_dataset()


# -- tools ---------------------------------------------------------------------------------------


def test_calls_of_a_programs_tools_are_counted():
    """Attempted and read; the program runs them itself."""
    written = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>\n{"na'
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    seen = []

    def play(task, client):
        body = {"model": "any", "messages": [{"role": "user", "content": "1 + 1?"}]}
        url = f"{client.session_url}/v1/chat/completions"
        choice = httpx.post(url, json=body | {"tools": [tool]}).json()["choices"][0]
        seen.append((choice["finish_reason"], choice["message"]["tool_calls"][0]["function"]))
        return 1.0

    rollout = rollout_of(
        program(play), DirectOutputAgent(TextEngine(TOKENIZER, written), SamplingParams())
    )
    assert rollout.error is None
    assert seen == [("tool_calls", {"name": "add", "arguments": '{"a": 1}'})]
    (step,) = rollout.episodes[0].steps
    assert step.info["metrics"] == {"tool_calls/attempted": 2.0, "tool_calls/parsed": 1.0}
