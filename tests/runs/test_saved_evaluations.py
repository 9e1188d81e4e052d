"""`agentsgym eval --output`, `--vs` and `--plan`."""

import json
import shutil

import pytest

from agentsgym import MultistepEnv, task_dataset
from agentsgym.envs import register
from agentsgym.evaluation import assess
from agentsgym.runs import load_config
from agentsgym.runs.files import RunDirectory, read_rollouts
from agentsgym.runs.files.records import SavedFigures

PLAYED: list[str] = []
STOP_AFTER: list[int] = []


class InterruptedEnv(MultistepEnv):
    """A coin: "heads" wins on even tasks. The user presses Ctrl-C after so many rollouts."""

    def _initialize_episode(self, session_id, task_data):
        if STOP_AFTER and len(PLAYED) >= STOP_AFTER[0]:
            raise KeyboardInterrupt
        PLAYED.append(session_id)
        return task_data["seed"]

    def _format_prompt(self, state, step):
        return "heads or tails?"

    def _step_episode(self, session_id, state, action):
        win = (action == "heads") == (state % 2 == 0)
        return state, float(win), True, {"win": win}

    def admissible_actions(self, state):
        return ["heads", "tails"]

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(120)])


@pytest.fixture(autouse=True)
def coin():
    register("tests/Coin", InterruptedEnv)
    PLAYED.clear()
    STOP_AFTER.clear()


def file_in(directory):
    return SavedFigures.read(directory / "evaluation.json")


def coin_eval(invoke, *more, rollouts=12):
    return invoke("eval", "agent:random", "--env", "tests/Coin", "--rollouts", str(rollouts), *more)


def test_an_interrupted_evaluation_continues_to_the_same_figures(invoke, tmp_path):
    STOP_AFTER.append(70)
    assert coin_eval(invoke, "-o", str(tmp_path / "it"), rollouts=100).exit_code != 0
    stored = file_in(tmp_path / "it")
    assert stored.status == "interrupted" and stored.figures is None
    assert len(list(read_rollouts(tmp_path / "it"))) == 70
    STOP_AFTER.clear()
    PLAYED.clear()
    continued = coin_eval(invoke, "-o", str(tmp_path / "it"), "--json", rollouts=100)
    assert len(PLAYED) == 30 and "has 70 rollouts" in continued.stderr
    whole = coin_eval(invoke, "-o", str(tmp_path / "whole"), "--json", rollouts=100)
    assert json.loads(continued.stdout) == json.loads(whole.stdout)
    stored = file_in(tmp_path / "it")
    assert stored.status == "finished" and stored.figures == file_in(tmp_path / "whole").figures
    rollouts = [list(read_rollouts(tmp_path / name)) for name in ("it", "whole")]
    assert rollouts[0] == rollouts[1] and len(rollouts[0]) == 100
    assert assess(rollouts[0]) == stored.figures.model_copy(
        update={"reference": None, "regret": None}
    )


def test_the_file_says_what_was_played_and_how(invoke, workplace):
    result = invoke(
        "eval", "model", "--env", "digit.DigitEnv", "--rollouts", "4", "--temperature", "0.5",
        "--max-action-tokens", "3", "--seed", "7", "-o", "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    file = json.loads((workplace / "out/evaluation.json").read_text())
    assert (file["schema"], file["model"], file["status"]) == (2, "model", "finished")
    settings = file["settings"]
    assert settings["sampling"]["temperature"] == 0.5 and settings["sampling"]["max_tokens"] == 3
    assert settings["seed"] == 7 and settings["env_config"]["explain_actions"] is True
    assert file["versions"]["torch"] and file["figures"]["rollouts"] == 4
    before = settings["weights"]
    shutil.copy(workplace / "model/config.json", workplace / "model/other.bin")
    changed = invoke(
        "eval", "model", "--env", "digit.DigitEnv", "--rollouts", "4", "--temperature", "0.5",
        "--max-action-tokens", "3", "--seed", "7", "-o", "out",
    )  # fmt: skip
    assert changed.exit_code == 2 and "weights is" in changed.stderr and before in changed.stderr


def test_another_evaluation_is_refused_and_nothing_is_lost(invoke, tmp_path):
    coin_eval(invoke, "-o", str(tmp_path))
    for more, message in (
        (["--seed", "1"], "in which seed is 0, not 1"),
        (
            ["env_config.explain_actions=false"],
            "in which env_config.explain_actions is True, not False",
        ),
    ):
        other = coin_eval(invoke, "-o", str(tmp_path), *more)
        assert other.exit_code == 2 and message in " ".join(other.stderr.split())
    assert len(list(read_rollouts(tmp_path))) == 12
    (tmp_path / "evaluation.json").unlink()
    other = coin_eval(invoke, "-o", str(tmp_path))
    assert other.exit_code == 2 and "is no evaluation and not empty" in other.stderr


def test_two_players_on_the_same_tasks(invoke, tmp_path):
    options = ["--env", "Bandit", "--rollouts", "48", "--seed", "3"]
    result = invoke("eval", "agent:optimal", "--vs", "agent:random", *options, "--json", "-o",
                    str(tmp_path))  # fmt: skip
    report = json.loads(result.stdout)
    alone = json.loads(invoke("eval", "agent:random", *options, "--json").stdout)
    assert alone.pop("passes") == [] and alone.pop("other_references") == {}
    assert report["evaluations"][1] == alone
    reward = report["comparison"]["reward"]
    assert reward["second"] == alone["reward"] and reward["interval"][0] > 0
    assert reward["difference"] == pytest.approx(reward["first"] - alone["reward"])
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert stored.pop("schema") == 2 and stored == report
    sides = [list(read_rollouts(tmp_path / name)) for name in ("model", "vs")]
    assert [r.session_id for r in sides[0]] == [r.session_id for r in sides[1]]
    shown = invoke("eval", "agent:optimal", "--vs", "agent:random", *options).stdout
    assert "agent:optimal is higher" in shown


def test_a_run_and_another_model_play_in_the_runs_environment(invoke, workplace):
    run = RunDirectory(workplace / "runs/toy")
    shutil.copytree("model", run.model)
    run.config.write_text(load_config("toy.yaml", {"eval.rollouts": 4}).to_yaml())
    result = invoke("eval", "runs/toy", "--vs", "model", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["comparison"]["pairs"] == 4
    turned = invoke("eval", "model", "--vs", "runs/toy", "--json")
    assert turned.exit_code == 0, turned.stderr
    assert json.loads(turned.stdout)["comparison"]["pairs"] == 4
    alone = invoke("eval", "model", "--vs", "agent:random")
    assert alone.exit_code == 2 and "name the environment with --env" in alone.stderr


def test_the_plan_is_shown_before_anything_is_played(invoke):
    result = coin_eval(invoke, "--plan", "--json", rollouts=100)
    plan = json.loads(result.stdout)
    assert (plan["pairs"], plan["clusters"]) == (100, 100)
    # (t(0.975) + t(0.8)) · sqrt(0.5 / 100), with 99 degrees of freedom
    assert plan["smallest_win_rate_difference"] == pytest.approx(0.2001, abs=1e-3)
    assert not PLAYED
    output = coin_eval(invoke, "--plan", "--rollouts-per-task", "4", rollouts=100).stdout
    assert "100 rollouts in 25 clusters" in output and "if all rollouts of a cluster" in output


def test_a_model_without_a_chat_template_is_reported(invoke, workplace):
    (workplace / "model/chat_template.jinja").unlink()
    result = invoke("eval", "model", "--env", "digit.DigitEnv", "--rollouts", "2")
    assert result.exit_code == 0 and "no chat template" in " ".join(result.stderr.split())


@pytest.mark.parametrize("more", [[], ["--vs", "agent:optimal"]])
def test_a_strangers_evaluation_is_not_written_through_its_links(invoke, tmp_path, more):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    played = ["eval", "agent:random", "--env", "Bandit", "--rollouts", "4"]
    assert invoke(*played, "-o", str(mine)).exit_code == 0
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    side = theirs / "model" if more else theirs
    side.mkdir(parents=True)
    shutil.copy(mine / "evaluation.json", side)
    (side / "rollouts").symlink_to(mine / "rollouts")
    result = invoke(*played, *more, "-o", str(theirs))
    assert result.exit_code == 2 and "is a link to" in result.stderr
    assert {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()} == before


def test_a_wrong_second_player_is_refused_before_the_first_plays(invoke, tmp_path):
    played = ["eval", "agent:random", "--env", "Bandit", "--rollouts", "4", "-o", f"{tmp_path}/out"]
    result = invoke(*played, "--vs", "agent:nope")
    assert result.exit_code == 2 and "no agent is called 'nope'" in result.stderr
    assert not (tmp_path / "out").exists()
