"""`agentsgym doctor` on runs that were really trained, and have several faults at once."""

import dataclasses
import json
import re
from pathlib import Path

import agentsgym.report.doctor
from helpers import build_tokenizer, random_llama

# Earlier turns are numbered anew each time, so each of them begins a new row.
NUMBERS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }} {{ messages | length - loop.index }}\n"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant 0\n{% endif %}"
)
MODULE = '''
from agentsgym import MultistepEnv, task_dataset


class Hopeless(MultistepEnv):
    """Nothing wins. Every eighth task breaks."""

    def _initialize_episode(self, session_id, task_data):
        if task_data["seed"] % 8 == 7:
            raise ConnectionError("the answerer is down")
        return 0

    def _format_prompt(self, state, step):
        return "say the word"

    def _step_episode(self, session_id, state, action):
        return state + 1, 0.0, state == 1, {"malformed": True, "win": False}

    def reference_score(self, task_data):
        return 0.0

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(16)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": 100 + k} for k in range(4)])
'''
RUN = """\
env: hopeless.Hopeless
env_config: {error_allowance: 9}
model: model
threads: 1
signal_check: false
train:
  max_steps: 3
  per_device_train_batch_size: 16
  num_generations: 2
  max_action_tokens: 4
  learning_rate: 1e-2
  use_cpu: true
eval: {rollouts: 4}
"""


def test_what_is_advised_are_settings_of_the_trainer():
    from agentsgym.training import GRPOEnvConfig

    folder = Path(agentsgym.report.doctor.__file__).parent
    text = (folder / "faults.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"train\.([a-z_]+)\b(?!\()", text))
    fields = {field.name for field in dataclasses.fields(GRPOEnvConfig)}
    assert len(named) > 8 and named <= fields


def test_each_fault_of_a_hopeless_training_is_reported(invoke, tmp_path, monkeypatch):
    tokenizer = build_tokenizer(NUMBERS)
    random_llama(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "hopeless.py").write_text(MODULE)
    (tmp_path / "run.yaml").write_text(RUN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    trained = invoke("train", "run.yaml", "--output", "runs/hopeless")
    assert trained.exit_code == 0, trained.stderr
    assert "(rollouts_fail) Also: " in trained.stdout
    assert "agentsgym doctor runs/hopeless" in trained.stdout
    result = invoke("doctor", "runs/hopeless", "--json")
    assert result.exit_code == 1, result.stderr
    data = json.loads(result.stdout)
    findings = {one["fault"]: one for one in data["findings"]}
    assert set(findings) == {
        "rollouts_fail",
        "reference_loses",
        "malformed_actions",
        "truncated_actions",
        "no_signal",
        "rows_break",
    }
    assert "the answerer is down" in str(findings["rollouts_fail"]["evidence"])
    assert "the template changes earlier turns" in str(findings["rows_break"]["evidence"])
    assert data["sets_read"] == ["train-0", "train-1", "train-2"]
    shown = invoke("view", "runs/hopeless")
    assert shown.exit_code == 0 and Path("runs/hopeless/view.html").is_file()
