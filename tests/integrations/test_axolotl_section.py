"""What the section `agentsgym:` of an Axolotl configuration may say, and what it is told."""

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("axolotl")
os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"  # read when Axolotl is imported

from axolotl.cli.config import load_cfg
from axolotl.integrations.base import PluginManager

from agentsgym.envs import ConfigError
from agentsgym.generation.settings import EngineSettings
from agentsgym.integrations.axolotl.plugin import section_of_this_run

EXAMPLES = Path(__file__).parents[2] / "examples" / "axolotl"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Returns a function that reads bandit.yaml as Axolotl does, with other keys."""
    monkeypatch.setattr(PluginManager.get_instance(), "plugins", {})

    def read(section=None, **options):
        config = yaml.safe_load((EXAMPLES / "bandit.yaml").read_text())
        config["agentsgym"] |= section or {}
        config["base_model"] = "builtin:quickstart"
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(config | {"output_dir": str(tmp_path)} | options))
        return load_cfg(str(file))

    return read


def test_the_section_becomes_settings(load):
    cfg = load({"eval_tasks": 3, "engine": {"urls": ["http://127.0.0.1:1"], "capacity": 4}})
    section = section_of_this_run()
    assert cfg.trainer_cls == "agentsgym.integrations.axolotl.trainer.AxolotlEnvTrainer"
    assert section.env == "Bandit" and section.env_config["arms"] == 2
    assert section.settings == {
        "advantage_estimator": "step_return",
        "max_action_tokens": 6,
        "use_cpu": True,
        "engine": EngineSettings(urls=["http://127.0.0.1:1"], capacity=4),
    }
    train, held_out = section.datasets()
    assert set(train.column_names) == {"env_class_path", "env_config", "task_data"}
    assert len(held_out) == 3


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"advantage_estimatr": "trial"}, "did you mean 'agentsgym.advantage_estimator'"),
        ({"engine": {"url": "http://a"}}, "did you mean 'agentsgym.engine.urls'"),
        ({"learning_rate": 1e-3}, "agentsgym.learning_rate belongs to Axolotl: set learning_rate"),
        ({"env": None}, "agentsgym.env must be a string"),
    ],
)
def test_a_wrong_key_is_named(load, section, words):
    with pytest.raises(ConfigError) as error:
        load(section)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rl": "dpo"}, "set rl: grpo"),
        ({"val_set_size": 0.1}, "see agentsgym.eval_tasks"),
        ({"trl": {"reward_funcs": ["a.b"]}}, "trl.reward_funcs has no use"),
        ({"trl": {"async_prefetch": True}}, "set agentsgym.max_staleness"),
    ],
)
def test_keys_of_axolotl_that_would_be_ignored_are_refused(load, options, words):
    with pytest.raises(ConfigError) as error:
        load(**options)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("written", "correct"), [({}, True), ({"use_bias_correction_kl": False}, False)]
)
def test_what_nobody_sets_is_as_without_axolotl(load, written, correct):
    cfg = load(trl={"num_generations": 8} | written)
    (plugin,) = PluginManager.get_instance().plugins.values()
    given = plugin.get_training_args(cfg)
    assert given["use_bias_correction_kl"] is correct and given["router_aux_loss_coef"] == 0.0


def test_a_configuration_may_be_registered_twice(load):
    """Workers of Ray register the plugin again with what Axolotl has made of the configuration."""
    cfg = load()
    for plugin in PluginManager.get_instance().plugins.values():
        plugin.register(cfg)


@pytest.mark.parametrize("missing", ["agentsgym.training", "agentsgym.runs.from_config"])
def test_a_plugin_that_cannot_be_imported_ends_the_command(load, monkeypatch, missing):
    """Axolotl itself would log the ImportError and train without the plugin."""
    for name in [n for n in sys.modules if n.startswith("agentsgym.integrations.axolotl.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(RuntimeError, match=r"agentsgym cannot be used by this Axolotl: .*pip inst"):
        load()


@pytest.mark.parametrize("name", ["bandit", "twenty_questions", "alfworld"])
def test_the_examples_are_what_axolotl_accepts(load, name, tmp_path):
    config = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    here = {"bf16": False, "output_dir": str(tmp_path), "base_model": "builtin:quickstart"}
    cfg = load(config.pop("agentsgym"), **config | here)
    assert cfg.rl == "grpo" and cfg.max_steps == config["max_steps"]


def test_the_file_on_the_page_is_what_axolotl_accepts(load, tmp_path):
    page = (EXAMPLES.parents[1] / "docs/integrations/trl.md").read_text()
    (block,) = re.findall(r"```yaml\n(base_model:.*?)```", page, re.DOTALL)
    config = yaml.safe_load(block)
    here = {"output_dir": str(tmp_path), "base_model": "builtin:quickstart"}
    load(config.pop("agentsgym"), **config | here)
    assert section_of_this_run().settings["engine"].urls == ["http://localhost:8000"]
