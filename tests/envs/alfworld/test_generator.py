"""Generated games: valid for the official code, reproducible, and of rooms that do not mix."""

import json
import subprocess
import sys
from pathlib import Path

from agentsgym.envs.alfworld.generator import generate
from agentsgym.envs.alfworld.scene import tables

OFFICIAL = """
import json, sys
from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv
from alfworld.agents.expert import HandCodedTWAgent

_, data_path, result = sys.argv  # the engine overwrites them
config = {
    "dataset": {"data_path": data_path, "num_train_games": -1},
    "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6],
            "domain_randomization": False, "expert_type": "planner"},
    "general": {"training_method": "dqn"},
    "rl": {"training": {"max_nb_steps_per_episode": 50}},
}
official = AlfredTWEnv(config, "train")
env = official.init_env(batch_size=1)
won = {}
for _ in official.game_files:
    _, infos = env.reset()
    path = infos["extra.gamefile"][0]
    for command in json.load(open(path))["walkthrough"]:
        assert command in infos["admissible_commands"][0], (path, command)
        _, scores, dones, infos = env.step([command])
    won[path] = [bool(infos["won"][0]), bool(dones[0]), scores[0]]
env.close()
json.dump(won, open(result, "w"))
"""


def test_the_official_environment_wins_them(tasks, cache_dir, tmp_path):
    script, result = tmp_path / "official.py", tmp_path / "won.json"
    script.write_text(f"if __name__ == '__main__':\n    exec({OFFICIAL!r})\n")
    subprocess.run(
        [sys.executable, str(script), str(cache_dir / "v1" / "train"), str(result)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    won = json.loads(result.read_text())
    assert set(won) >= {task["game_file"] for task in tasks.values()}
    assert all(ended == [True, True, 1] for ended in won.values())


def test_same_seed_same_game(tasks, tmp_path):
    task = tasks["pick_two_obj_and_place"]
    again = generate(tmp_path / "again", task["task_type"], "train", task["seed"])
    other = generate(tmp_path / "other", task["task_type"], "train", 1)
    assert again.read_bytes() == Path(task["game_file"]).read_bytes()
    assert other.read_bytes() != again.read_bytes()
    assert generate(tmp_path / "again", task["task_type"], "train", task["seed"]) == again


def test_unseen_rooms_are_those_that_training_never_has(tmp_path, tasks):
    unseen = generate(tmp_path / "unseen", "pick_and_place_simple", "valid_unseen", 0)
    plans = [
        json.loads(Path(file).with_name("traj_data.json").read_text())["scene"]["scene_num"]
        for file in (unseen, tasks["pick_and_place_simple"]["game_file"])
    ]
    assert plans[0] in tables().TEST_SCENE_NUMBERS
    assert plans[1] in tables().TRAIN_SCENE_NUMBERS
