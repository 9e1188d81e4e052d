"""An action in the forms that models write it in, texts that are ambiguous, and hostile texts."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsgym.envs.action_text import MAX_CHARACTERS, bare, read_action, read_option
from agentsgym.envs.classical_reasoning.answers import final_answer
from agentsgym.envs.gymnasium import action_word
from agentsgym.envs.mastermind import MastermindEnv
from agentsgym.envs.textarena.play import last_move
from agentsgym.envs.twenty_questions.knowledge import load_table
from agentsgym.envs.twenty_questions.questions import parse

COMMANDS = ("go to desk 1", "go to desk 10", "look", "take mug 1 from desk 1", "open door")
TABLE = load_table("quickstart")
PEGS = MastermindEnv(None, {"colors": 3})
COLORS = PEGS.color_names

AROUND = [
    ("", ""), ("  \n", "\n\n"), ('"', '"'), ("“", "”"), ("'", "'"), ("`", "`"), ("**", "**"),
    ("```\n", "\n```"), ("```text\n", "\n```"), ("Action: ", ""), ("Answer: ", ""),
    ("**Action:** ", ""), ("**My answer**: ", ""), ("My guess is ", ""), ("My guess is: ", ""),
    ("The answer is ", ""), ("I choose ", ""), ("I'll pull ", ""), ("", "."), ("", "!"), ("", ", "),
    ("<think>look, red or [5]?</think>", ""), ("Action:\n", ""),
]  # fmt: skip


def _is_written(forms):
    """Thoughts come first; a fence is not in a fence and not in backticks."""
    befores = [before for before, _ in forms]
    thinks = any("think" in before for before in befores[:-1])
    fences = sum("```" in before for before in befores)
    return not thinks and (fences == 0 or (fences == 1 and "`" not in befores))


wrapped = st.lists(st.sampled_from(AROUND), max_size=2, unique=True).filter(_is_written)


def wrap(action, forms):
    """The action in these forms, the first one innermost."""
    for before, after in forms:
        action = f"{before}{action}{after}"
    return action


@given(st.sampled_from(COMMANDS), wrapped)
def test_a_command_in_any_form_is_that_command(command, forms):
    assert read_option(wrap(command, forms), COMMANDS) == command
    assert read_option(wrap(command.capitalize(), forms), COMMANDS) == command


@given(st.lists(st.sampled_from(COLORS), min_size=2, max_size=2), wrapped)
def test_a_code_in_any_form_is_that_code(code, forms):
    text = wrap(" ".join(code), forms)
    assert read_action(text, PEGS.read_code, PEGS.names_code) == tuple(
        COLORS.index(color) for color in code
    )


@given(st.sampled_from(COLORS), wrapped)
def test_a_word_in_any_form_is_that_word(word, forms):
    assert action_word(wrap(word, forms), COLORS) == word


@given(st.integers(1, 20), st.booleans(), wrapped)
def test_a_move_in_any_form_is_that_move(number, brackets, forms):
    text = wrap(f"[{number}]" if brackets else str(number), forms)
    assert last_move(text) == f"[{number}]"


@given(st.sampled_from(TABLE.attributes), wrapped)
def test_a_question_in_any_form_is_that_question(attribute, forms):
    text = wrap(attribute.question, [form for form in forms if "think" not in form[0]])
    question = parse(text, TABLE)
    assert question is not None and question.attribute == attribute.key


@pytest.mark.parametrize(
    "text", ["```\nFriday\n```", "```text\nFriday\n```.", "My guess is Friday", "Answer: Friday"]
)
def test_a_final_answer_in_a_fence_or_after_a_label(text):
    assert final_answer(text) == "Friday"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("I see a desk.\ngo to desk 1\n", "go to desk 1"),
        ("go to desk 1\nThis brings me closer.", "go to desk 1"),
        ("I would say [go to desk 1].", "go to desk 1"),
        ("First this:\n```\nopen door\n```", "open door"),
        ("[open door] or [look]", None),
        ("I could look.\nopen door", None),
        ("I will not do this:\nopen door", None),
        ("Don't do this:\nopen door", None),
        ("open door look", None),
        ("go to desk 1 and go to desk 10", None),
        ("", None),
        ("[]", None),
    ],
)
def test_texts_around_a_command(text, command):
    assert read_option(text, COMMANDS) == command


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("Sure! Is it alive?", "alive"),
        ("Let me think. Okay:\nIs it alive?", "alive"),
        ("Is it alive? Is it a food?", None),
        ("Is it alive?\nIs it a food?", None),
    ],
)
def test_sentences_around_a_question(text, attribute):
    question = parse(text, TABLE)
    assert (question and question.attribute) == attribute


@pytest.mark.parametrize("text", ["I don't go left", "not left", "never left", "don’t: left"])
def test_a_negated_word_is_no_action(text):
    assert action_word(text, ["left", "right"]) is None


@given(st.text(max_size=300))
def test_any_text_is_read_or_not(text):
    assert read_option(text, COMMANDS) in (None, *COMMANDS)
    assert len(bare(text)) <= len(text)


@pytest.mark.clock
@pytest.mark.parametrize(
    "unit",
    ['"', "*", "`", "```", "[", "]", "[a", "Action:", "my ", "\n", "n't", "not ", "a\n", "…"],
)
def test_hostile_texts_take_linear_time(unit):
    text = (unit * MAX_CHARACTERS)[:MAX_CHARACTERS]
    long = unit * 100_000
    start = time.perf_counter()
    read_option(text, COMMANDS), read_option(long, COMMANDS), bare(long)
    (
        read_action(long, PEGS.read_code, PEGS.names_code),
        last_move(long),
        final_answer(long),
        parse(long, TABLE),
    )
    assert time.perf_counter() - start < 1.0
