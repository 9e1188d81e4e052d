"""`import agentsgym` stays light."""

import subprocess
import sys


def prints(code):
    """What a process of its own prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_no_torch():
    loaded = "import sys, agentsgym; print({'torch', 'trl', 'transformers', 'datasets'} & set(%s))"
    assert prints(loaded % "sys.modules") == "set()"


def test_writing_and_playing_an_environment_needs_no_torch():
    code = (
        "import sys; from agentsgym import ScriptedAgent, make; "
        "make('TwentyQuestions').run_trial([{'solution': 'apple'}], ScriptedAgent(['[apple]'])); "
        "assert 'torch' not in sys.modules and 'trl' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_starts_without_what_only_some_commands_need():
    code = (
        "import sys, agentsgym.cli.app; "
        "slow = {'torch', 'pydantic', 'datasets', 'agentsgym.runs', 'agentsgym.rollout'}; "
        "assert not slow & set(sys.modules), slow & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_packages_are_attributes_as_soon_as_they_are_asked_for():
    code = (
        "import sys, agentsgym; assert 'numpy' not in sys.modules; "
        "assert agentsgym.credit.advantages and agentsgym.envs.make; "
        "assert 'torch' not in sys.modules; from pathlib import Path; "
        "paths = Path(agentsgym.__file__).parent.glob('*/__init__.py'); "
        "packages = {path.parent.name for path in paths}; "
        "hidden = packages - set(dir(agentsgym)); "
        "assert hidden <= {'cli', 'integrations', 'presets'}, hidden"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_twenty_questions_is_imported_by_its_registered_name():
    import agentsgym.envs.TwentyQuestions
    from agentsgym.envs.TwentyQuestions import TwentyQuestionsEnv

    assert TwentyQuestionsEnv is agentsgym.TwentyQuestionsEnv
    module = "agentsgym.envs.TwentyQuestions"
    for path in (module, f"{module}.TwentyQuestionsEnv"):
        assert type(agentsgym.make(path)) is TwentyQuestionsEnv
