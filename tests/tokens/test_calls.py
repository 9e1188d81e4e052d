"""The tree of a program's calls: which row each one continues, and why another begins."""

from agentsgym.tokens import codec_for
from agentsgym.types import Answer, Message, ModelCall
from chat_tokenizers import template, tokenizer_for
from helpers import assistant, user
from recorded import Recorded, sampled

TOKENIZER = tokenizer_for(template("qwen2_5"), "<|im_end|>")


class Program(Recorded):
    """Calls a model that gives the answers that the test chooses."""

    def __init__(self):
        super().__init__(codec_for(TOKENIZER))

    def call(self, *messages, answer):
        self.tree.call(ModelCall(tuple(messages)))
        self.act(sampled(TOKENIZER, answer))
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


def test_an_answer_that_the_program_stripped_stays_in_its_row():
    program = Program()
    program.call(user("Go."), answer=" Where?\n")
    talk = program.call(user("Go."), assistant("Where?"), user("North."), answer="\n")
    talk = program.call(*talk[:-1], assistant(""), user("West."), answer="There. ")
    assert begun(program) == [("episode", [0, 1, 2])]
    text = rendered(talk).replace("Where?", " Where?\n").replace("assistant\n<", "assistant\n\n<")
    assert program.rows[0][2] + "\n" == text


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
    message, _ = record.tree.codec.answer(ids)
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": {"town": "Rome"}}
    record.act(Answer(message, ids, (-0.5,) * len(ids)))
    result = Message("tool", "Sun.", tool_call_id=call["id"], name="weather")
    record.tree.call(ModelCall((user("Rome?"), message, result), (WEATHER,)))
    (row,) = record.rollout().rows
    assert tuple(row.token_ids[row.spans[0].start : row.spans[0].stop]) == ids
    assert "<tool_response>\nSun.\n</tool_response>" in TOKENIZER.decode(row.token_ids)
