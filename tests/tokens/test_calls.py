"""The tree of a program's calls: which row each one continues, and why another begins."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.tokens import codec_for
from agentsgym.types import GenerationResult, Message, ModelCall
from chat_tokenizers import template, tokenizer_for
from helpers import assistant, system, user
from recorded import Recorded, sampled

TOKENIZER = tokenizer_for(template("qwen2_5"), "<|im_end|>")


class Program(Recorded):
    """Calls a model that gives the answers that the test chooses."""

    def __init__(self):
        super().__init__(codec_for(TOKENIZER))

    def call(self, *messages, answer):
        self.tree.call(ModelCall(tuple(messages)))
        self.act(sampled(TOKENIZER, answer), assistant(answer))
        return [*messages, assistant(answer)]

    @property
    def rows(self):
        return [
            (row.begins, [span.step for span in row.spans], TOKENIZER.decode(row.token_ids))
            for row in self.rollout().rows
        ]


def rendered(messages):
    return TOKENIZER.apply_chat_template(messages, tokenize=False)


def begun(program):
    return [(begins, steps) for begins, steps, _ in program.rows]


def test_a_conversation_that_goes_on_stays_one_row():
    program = Program()
    talk = program.call(system("Be brief."), user("Go."), answer="Where?")
    talk = program.call(*talk, user("North."), answer="And now?")
    talk = program.call(*talk, user("West."), user("I said west."), answer="There.")
    ((begins, steps, text),) = program.rows
    assert (begins, steps) == ("episode", [0, 1, 2])
    assert text + "\n" == rendered(talk)
    row = program.rollout().rows[0]
    for span, answer in zip(row.spans, ("Where?", "And now?", "There."), strict=True):
        assert TOKENIZER.decode(row.token_ids[span.start : span.stop]) == f"{answer}<|im_end|>"
        assert set(row.logprobs[span.start : span.stop]) == {-0.5}


def test_a_changed_answer_begins_a_row():
    program = Program()
    program.call(user("Go."), answer="Where?")
    program.call(user("Go."), assistant("WHERE?"), user("North."), answer="Fine.")
    assert begun(program) == [("episode", [0]), ("history", [1])]
    talk = [user("Go."), assistant("WHERE?"), user("North."), assistant("Fine.")]
    assert program.rows[1][2] + "\n" == rendered(talk)


def test_an_answer_that_the_program_stripped_stays_in_its_row():
    program = Program()
    program.call(user("Go."), answer=" Where?\n")
    talk = program.call(user("Go."), assistant("Where?"), user("North."), answer="\n")
    talk = program.call(*talk[:-1], assistant(""), user("West."), answer="There. ")
    assert begun(program) == [("episode", [0, 1, 2])]
    text = rendered(talk).replace("Where?", " Where?\n").replace("assistant\n<", "assistant\n\n<")
    assert program.rows[0][2] + "\n" == text


def test_another_opening_is_another_conversation_and_the_first_one_goes_on():
    program = Program()
    talk = program.call(system("Plan."), user("Go."), answer="Ask the helper.")
    helper = program.call(system("Help."), user("Where?"), answer="North.")
    talk = program.call(*talk, user("North."), answer="Done.")
    helper = program.call(*helper, user("Thanks."), answer="Bye.")
    assert begun(program) == [("episode", [0, 2]), ("conversation", [1, 3])]
    assert [text + "\n" for *_, text in program.rows] == [rendered(talk), rendered(helper)]


def test_a_branch_begins_with_the_recorded_tokens():
    program = Program()
    talk = program.call(user("Go."), answer="Where?")
    north = program.call(*talk, user("North."), answer="Cold.")
    south = program.call(*talk, user("South."), answer="Warm.")
    assert begun(program) == [("episode", [0, 1]), ("branch", [2])]
    first, second = program.rollout().rows
    stop = first.spans[0].stop
    assert second.token_ids[:stop].tolist() == first.token_ids[:stop].tolist()
    assert set(second.logprobs[:stop]) == {0.0}  # its first answer is context here
    assert [text + "\n" for *_, text in program.rows] == [rendered(north), rendered(south)]


def test_the_same_call_again_is_a_retry_with_the_same_context():
    program = Program()
    program.call(user("Go."), answer="Where?")
    again = program.call(user("Go."), answer="What?")
    program.call(*again, user("North."), answer="Yes.")
    assert begun(program) == [("episode", [0]), ("retry", [1, 2])]
    first, second = program.rollout().rows
    start = first.spans[0].start
    assert second.spans[0].start == start
    assert second.token_ids[:start].tolist() == first.token_ids[:start].tolist()


def test_a_later_call_again_is_a_retry_too():
    program = Program()
    talk = program.call(user("Go."), answer="Where?")
    program.call(*talk, user("North."), answer="Why?")
    again = program.call(*talk, user("North."), answer="Yes.")
    program.call(*again, user("Then go."), answer="I go.")
    program.call(*talk, user("South."), answer="No.")
    assert begun(program) == [("episode", [0, 1]), ("retry", [2, 3]), ("branch", [4])]
    first, second, _ = program.rollout().rows
    start = first.spans[1].start
    assert second.spans[0].start == start
    assert second.token_ids[:start].tolist() == first.token_ids[:start].tolist()


def test_a_withdrawn_call_leaves_no_tokens():
    program = Program()
    talk = program.call(user("Go."), answer="Where?")
    before = list(program.rollout().rows[0].token_ids)
    program.tree.call(ModelCall((*talk, user("North."))))
    program.tree.withdraw()
    assert list(program.rollout().rows[0].token_ids) == before
    program.tree.call(ModelCall((user("Else."),)))
    program.tree.withdraw()
    assert begun(program) == [("episode", [0])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from("abc")), min_size=1, max_size=12))
def test_whatever_a_program_continues_each_answer_is_in_one_row_after_its_conversation(moves):
    program, talks = Program(), [[user("Go.")], [user("Help.")]]
    for choice, word in moves:
        talk = talks[choice % len(talks)]
        talks.append([*program.call(*talk, answer=word), user(f"{word}?")])
    steps = [step for _, steps, _ in program.rows for step in steps]
    assert sorted(steps) == list(range(len(moves)))
    for number, talk in enumerate(talks[2:]):
        (row,) = [r for r in program.rollout().rows if number in [s.step for s in r.spans]]
        (span,) = [span for span in row.spans if span.step == number]
        assert TOKENIZER.decode(row.token_ids[: span.stop]) + "\n" == rendered(talk[:-1])


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


def test_a_call_of_a_tool_and_its_result_extend_the_row_with_the_sampled_ids():
    """The model writes its JSON in another way than the template would: its ids stay."""
    record = Recorded(codec_for(TOKENIZER))
    written = '<tool_call>\n{"arguments": {"town":"Rome"},  "name": "weather"}\n</tool_call>'
    ids = (*TOKENIZER.encode(written, add_special_tokens=False), TOKENIZER.eos_token_id)
    first = ModelCall((user("Rome?"),), (WEATHER,))
    record.tree.call(first)
    action = GenerationResult("", ids, (-0.5,) * len(ids), written)
    message = record.tree.answer(action, first).message
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": {"town": "Rome"}}
    record.act(action, message)
    result = Message("tool", "Sun.", tool_call_id=call["id"], name="weather")
    record.tree.call(ModelCall((user("Rome?"), message, result), (WEATHER,)))
    (row,) = record.rollout().rows
    assert tuple(row.token_ids[row.spans[0].start : row.spans[0].stop]) == ids
    assert "<tool_response>\nSun.\n</tool_response>" in TOKENIZER.decode(row.token_ids)


def test_other_tools_begin_a_row():
    record = Recorded(codec_for(TOKENIZER))
    for tools in [(WEATHER,), ()]:
        record.tree.call(ModelCall((user("Rome?"),), tools))
        record.act(GenerationResult("", (5,), (-0.5,), "a"), assistant("a"))
    assert [row.begins for row in record.rollout().rows] == ["episode", "tools"]
    assert [step.tools for step in record.steps] == [(WEATHER,), ()]
