"""`agentsgym doctor`: each fault is found in a run that has it, and no other; a healthy run has
none. The runs here are written by the library's writers; tests/cli/test_doctor_command.py has a
trained one."""

import json

import pytest
from typer.testing import CliRunner

from agentsgym.cli.app import app
from agentsgym.report.doctor import FAULTS, Evidence, diagnose, read_evidence
from agentsgym.report.stored import Source, columns
from report.doctor_runs import STEPS, breaking, healthy_line, healthy_rollouts, play, write_run
from report.test_doctor_learning import CASES as LEARNING
from viewer_runs import figures


def changed(**values):
    """Healthy metrics with other values: numbers, or functions of the step."""
    return lambda step: (
        healthy_line(step)
        | {
            name.replace("__", "/"): value(step) if callable(value) else value
            for name, value in values.items()
        }
    )


def late(early, recent):
    """A value of the first half and one of the second."""
    return lambda step: early if step <= STEPS // 2 else recent


def faults_in(root):
    return diagnose(read_evidence(Source(root)))


def the_fault(root):
    (fault,) = faults_in(root)
    return fault


def games(make, groups=4):
    """The rollouts of each generation: `make(group, index)` of four in each group."""
    return lambda step: [make(group, index) for group in range(groups) for index in range(4)]


def same_action(step):
    first = (lambda i: f"Is it {i}?") if step < STEPS // 2 else (lambda i: "[cat]")
    return games(lambda g, i: play(g, i, (first(i), "[cat]"), reward=float(i == 0)), 6)(step)


def of_mix(group):
    return ("Puzzle", "Maze", "Puzzle", "Maze")[group]


alike = games(lambda g, i: play(g, i, (f"[{g}]",), reward=g / 10, win=False))
unreadable = games(
    lambda g, i: play(g, i, ("blah", f"blah {i}"), reward=float(i % 2), malformed=i > 0)
)
cut = games(lambda g, i: play(g, i, (f"Is it {i}", "or"), reward=float(i % 2), truncated=g == 2))
paid_losses = games(lambda g, i: play(g, i, reward=0.7 + i / 10, win=i == 0))
broken = games(
    lambda g, i: play(
        g, i, env=of_mix(g), reward=float(i % 2),
        error="ValueError: no map" if of_mix(g) == "Maze" and i == 3 else None,
    )
)  # fmt: skip


CASES = {
    "rollouts_fail": (
        {"line": changed(failed=0.25), "rollouts": broken},
        ["25% of the rollouts fail", "no map"],
        "train-39/1/3",
    ),
    "malformed_actions": (
        {"line": changed(malformed=late(0.02, 0.7)), "rollouts": unreadable},
        ["70% of the actions are malformed in steps 33 to 40 (2.0% in", "'blah'"],
        "train-39/0/1",
    ),
    "truncated_actions": (
        {"line": changed(truncated=late(0.0, 0.4)), "rollouts": cut},
        ["40% of the actions", "8 agent tokens", "train.max_action_tokens is 12"],
        "train-39/2/0",
    ),
    "no_signal": (
        {"line": changed(groups_without_signal=1.0, win_rate=0.0), "rollouts": alike},
        ["16 of 16 groups", "median 0.2", "0 more are won"],
        "train-39/0/0",
    ),
    "reward_against_wins": (
        {
            "line": changed(reward=lambda s: 0.2 + 0.01 * s, win_rate=lambda s: 0.602 - 0.01 * s),
            "rollouts": paid_losses,
        },
        ["reward 0.245 in steps 1 to 8, 0.565 in steps 33 to 40", "win rate 56% and then 24%"],
        "train-39/0/1",
    ),
    "one_action": (
        {"line": changed(win_rate=0.5, reward=0.5), "rollouts": same_action},
        ["100% of 192 actions on 24 tasks are '[cat]'", "50% at the beginning"],
        "train-39/0/0",
    ),
    "entropy_gone": (
        {"line": changed(entropy=late(1.0, 0.01))},
        ["entropy 1 nats", "0.01 in steps 33 to 40", "half at step 21"],
        None,
    ),
    "sampler_mismatch": (
        {
            "line": changed(sampler__logp_difference=0.3, sampler__capped_rows=0.2),
            "record": {"gap": 0.3},
        },
        ["0.3 nats per token", "20% of the rows"],
        "train-39/0/0",
    ),
    "ratios_clipped": (
        {
            "line": changed(clipped=late(0.02, 0.4), ratio__token_ess=0.1),
            "record": {"ratio": 3.0},
        },
        [
            "21% of the agent tokens are clipped in steps 1 to 40, 40% in steps 33 to 40",
            "ratio/token_ess is 0.1",
        ],
        "train-39/0/0",
    ),
    "tokens_masked": (
        {"line": changed(masked=0.6, masked__dppo=0.1, masked__icepop=0.55)},
        ["60% of the agent tokens are left out in steps", "55% by icepop"],
        "train-39/0/0",
    ),
    "rows_break": (
        {
            "line": changed(
                template_breaks=1.0, template_breaks__thoughts=1.0, rows_per_rollout=2.0
            ),
            "rollouts": lambda step: [breaking(one) for one in healthy_rollouts(step)],
        },
        [
            "rows that the template began: 1 per rollout",
            "drops earlier thoughts",
            "24 tokens per rollout; 2 rows per rollout",
        ],
        "train-39/0/0",
    ),
    "reference_loses": (
        {"before": figures(reference=0.6)},
        ["best known play wins 60% of the held-out tasks"],
        None,
    ),
}


def test_every_fault_has_a_case():
    assert set(CASES) | set(LEARNING) == set(FAULTS)


def test_a_reward_that_is_the_share_of_wins_by_chance_is_none(tmp_path):
    """Questions cost something, so best play earns 0.6; at the beginning nobody asks."""
    lines = changed(win_rate=0.7, reward=0.5)
    found = faults_in(write_run(tmp_path, line=lines, before=figures(reference=0.6)))
    assert "reference_loses" not in [fault.fault for fault in found]


def test_a_healthy_run_has_no_fault(tmp_path):
    assert faults_in(write_run(tmp_path)) == []


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_is_found_with_its_evidence_and_no_other_is(tmp_path, fault):
    changes, texts, rollout = CASES[fault]
    finding = the_fault(write_run(tmp_path, **changes))
    assert finding.fault == fault and finding.next
    evidence = "; ".join(finding.evidence)
    assert all(text in evidence for text in texts), evidence
    assert finding.rollouts[:1] == (() if rollout is None else (rollout,))


def test_groups_that_are_all_won_are_no_fault(tmp_path):
    won = games(lambda g, i: play(g, i, reward=1.0))
    line = changed(groups_without_signal=1.0, win_rate=0.97, reward=0.97, entropy=late(1.0, 0.01))
    unknown = figures(reference=None, regret=None)
    assert faults_in(write_run(tmp_path, line, won, before=unknown)) == []


def test_wins_that_earn_less_than_the_reference_are_no_success(tmp_path):
    """96 % of the games are won, with 82 % of the reference's reward."""
    won = games(lambda g, i: play(g, i, reward=0.6))
    line = changed(
        groups_without_signal=late(0.2, 0.96), win_rate=0.96, reward=0.6, entropy=late(1.0, 0.017)
    )
    better = figures(reference=0.73, win_rate=0.4)
    findings = faults_in(write_run(tmp_path, line, won, before=better))
    assert [one.fault for one in findings] == ["reward_constant", "entropy_gone"]
    assert "best known play earns 0.73" in findings[0].evidence
    enough = figures(reference=0.65, win_rate=0.4)
    assert faults_in(write_run(tmp_path / "enough", line, won, before=enough)) == []


def test_suggested_commands_hold_nothing_that_a_stranger_wrote():
    """The names of a mix come from the metrics, which may be another person's."""
    evil = "Maze; echo owned #"
    line = {f"env/{evil}/failed": 0.5, "env/Digit/failed": 0.0, "failed": 0.25, "reward": 0.5}
    lines = [{"phase": "train", "step": step, **line} for step in range(1, STEPS + 1)]
    findings = {one.fault: one for one in diagnose(Evidence(columns(lines)))}
    assert "`agentsgym check ENV`" in findings["rollouts_fail"].next
    assert findings["rollouts_fail"].evidence[0].startswith(f"{evil}: 50% of the rollouts fail in")


@pytest.mark.parametrize(
    ("groups", "mixed", "reward", "named"),
    [
        (4, 0, 0.75, {"no_signal"}),
        (4, 1, 0.75, set()),  # half of the groups that are not won have something to compare
        (6, 0, 0.75, set()),  # a sixth of the groups
        (4, 0, 0.95, set()),  # solved, of a reference of 1
    ],
)
def test_few_groups_without_signal_are_named_where_hardly_others_are_left(
    tmp_path, groups, mixed, reward, named
):
    """One group is lost by all, `mixed` are won by one of four, the others by all."""

    def made(group, index):
        won = float(group > mixed or (group > 0 and index == 0))
        actions = (f"Is it {group}?", f"[{index}]")
        return play(group, index, actions, reward=won, win=won == 1)

    line = changed(reward=lambda s: reward - (STEPS - s) / 100, win_rate=reward)
    root = write_run(tmp_path, line, games(made, groups))
    assert {one.fault for one in faults_in(root)} == named


def test_a_model_that_beats_the_reference_before_training_is_reported(tmp_path):
    shaped = figures(win_rate=None, ci95=None, reward=1.2, reference=1.0)
    assert (
        "the model 1.2 before training" in the_fault(write_run(tmp_path, before=shaped)).evidence[0]
    )


def test_a_short_run_tells_no_trends():
    early = {"step": 1, **healthy_line(1), "entropy": 1.0, "reward": 0.1, "win_rate": 0.9}
    late_line = {"step": 2, **healthy_line(2), "entropy": 0.0, "reward": 0.9, "win_rate": 0.1}
    lines = [{"phase": "train", **line} for line in (early, late_line)]
    assert diagnose(Evidence(columns(lines))) == []
    assert diagnose(Evidence(columns([]))) == []


def test_exit_status_and_json(tmp_path):
    changes, *_ = CASES["no_signal"]
    run = write_run(tmp_path / "run", **changes)
    result = CliRunner().invoke(app, ["doctor", str(run), "--json"])
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["training_steps"] == STEPS and "train-39" in data["sets_read"]
    (finding,) = data["findings"]
    assert finding["fault"] == "no_signal" and finding["next"] and finding["steps"] == [35, 40]
    output = CliRunner().invoke(app, ["doctor", str(run)]).stdout
    assert (
        f"agentsgym view {run} --steps 39-39 --rollouts 0" in output and "1 fault of the" in output
    )
    healthy = CliRunner().invoke(app, ["doctor", str(write_run(tmp_path / "healthy"))])
    assert healthy.exit_code == 0 and "no fault" in healthy.stdout
    assert CliRunner().invoke(app, ["doctor", str(tmp_path / "none")]).exit_code == 2


def test_what_cannot_be_read_is_reported_and_the_rest_is_used(tmp_path):
    changes, *_ = CASES["truncated_actions"]
    run = write_run(tmp_path, **changes)
    (run / "rollouts/train-000039.parquet").write_bytes(b"no rollouts")
    (run / "summary.json").write_text("{")
    result = CliRunner().invoke(app, ["doctor", str(run)])
    assert result.exit_code == 1 and result.stdout.count("not read:") == 2
    assert "train-38/2/0" in result.stdout


def test_texts_of_a_stranger_reach_the_terminal_escaped(tmp_path):
    action = "\x1b[31m[bold]x[/bold]"
    hostile = games(lambda g, i: play(g, i, (action,), reward=float(i % 2), malformed=True))
    run = write_run(tmp_path, changed(malformed=0.9), hostile)
    output = CliRunner().invoke(app, ["doctor", str(run)]).stdout
    assert "\x1b[31m" not in output and "[bold]x[/bold]" in output
