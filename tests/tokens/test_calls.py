"""The tree of a program's calls: which row each one continues, and why another begins."""

from agentsgym.tokens import codec_for
from agentsgym.types import ModelCall
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
