"""What needs a GPU is tried on the CPU, with tiny sizes; its figures mean nothing here."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
CALM = """
import json, sys
print("not a figure")
print(json.dumps({"case": "a", "ratio": 2.0}))
print(json.dumps({"device": "x", "cpu_ratio": 3.0, "given": sys.argv[1:]}))
"""
DYING = 'print(\'{"ratio": 2.0}\'); raise SystemExit("no ratio: other work")'
LACKING = 'print(\'{"not_run": "vLLM is missing"}\')'
SLOW = """
import time
print('{"first": 1}', flush=True)
time.sleep(600)
"""


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The driver, with parts of our own."""
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module("gpu")
    parts = {}
    for name, text in {
        "calm": CALM, "dying": DYING, "lacking": LACKING, "slow": SLOW
    }.items():  # fmt: skip
        (tmp_path / f"{name}.py").write_text(text)
        parts[name] = module.Part(f"the {name} one", f"{name}.py", "--large", "--small")
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "PARTS", parts)
    return module


def test_all_parts_become_lines_of_one_table_and_one_file(gpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "LIMIT", 2.0)
    out = tmp_path / "build" / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--out", str(out)])
    with pytest.raises(SystemExit, match="without figures: dying, slow"):
        gpu.main()
    parts = json.loads(out.read_text())["parts"]
    assert {name: one["status"] for name, one in parts.items()} == {
        "calm": "done",
        "dying": "failed",
        "lacking": "not run",
        "slow": "not done in time",
    }
    assert parts["calm"]["device"] == "x" and parts["dying"]["device"] == "cpu"
    assert parts["calm"]["figures"] == {
        "a: ratio": 2.0,
        "cpu_ratio": 3.0,
        "given": ["--device", "cpu", "--small"],
    }
    assert "no ratio: other work" in parts["dying"]["reason"]
    assert parts["lacking"]["reason"] == "vLLM is missing"
    assert parts["slow"]["figures"] == {"first": 1}  # what it said before
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert any("a: ratio" in line and "2.0" in line for line in table)
    assert any("vLLM is missing" in line for line in table)
    assert not any("cpu_ratio" in line for line in table)


@pytest.mark.parametrize("script", ["generation", "training_step", "memory", "one_gpu", "device"])
@pytest.mark.slow
def test_the_arguments_for_a_gpu_are_those_of_the_script(script, monkeypatch):
    """argparse checks them one by one before it comes to `--help`."""
    monkeypatch.syspath_prepend(FOLDER)
    parts = importlib.import_module("gpu").PARTS.values()
    given = [part.on_gpu for part in parts if part.script == f"{script}.py"]
    assert given
    for arguments in given:
        command = [sys.executable, FOLDER / f"{script}.py", "--device", "cuda"]
        subprocess.run([*command, *arguments.split(), "--help"], check=True, capture_output=True)


# -- the real parts, in small ----------------------------------------------------------------------

REAL = {
    "equality": {"equal_families", "llama: logp_difference"},
    "graph": {"eager_ms"},
    "training-step-0.5-long": {"ours_over_trl", "forest_over_rows"},
    "generation-0.5": {"ours_over_trl_3_turns_0.002b", "ours_over_continuous_3_turns_0.002b"},
    "generation-1.5-long": {"ours_over_trl_4_turns_0.002b"},
    "training-step-1.5": {"ours_over_trl"},
    "memory-0.5": {"trial: measured_mb", "trial: estimate_over_measured"},
    "one-gpu": {"logp_difference_worst_step"},
    "logprobs": {"vllm_worst"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_a_part(name, tmp_path):
    """With a server of our own, where one is needed."""
    outcome = real_part(name, tmp_path, AGENTSGYM_VLLM_PYTHON="serve-model")
    assert outcome["status"] == "done", outcome["reason"]
    assert outcome["figures"].keys() >= REAL[name]


@pytest.mark.slow
def test_a_part_without_vllm_says_so(tmp_path):
    outcome = real_part("one-gpu", tmp_path, AGENTSGYM_VLLM_PYTHON="/no/python")
    assert outcome["status"] == "not run"
    assert "vLLM is missing" in outcome["reason"]


@pytest.mark.doors
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "figure"), [("one-gpu", "logp_difference_worst_step"), ("logprobs", "vllm_worst")]
)
def test_a_part_with_a_server(name, figure, tmp_path):
    outcome = real_part(name, tmp_path)
    assert outcome["status"] == "done", outcome["reason"]
    assert outcome["figures"][figure] < 1e-4


def real_part(name, folder, **variables):
    """What the driver says of a part."""
    out = folder / "gpu.json"
    subprocess.run(
        [sys.executable, FOLDER / "gpu.py", name, "--device", "cpu", "--out", out],
        capture_output=True,
        env=os.environ | {"AGENTSGYM_BENCH_CACHE": str(folder / "cache")} | variables,
        timeout=600,
    )
    return json.loads(out.read_text())["parts"][name]
