"""System and developer messages anywhere in a conversation, in three APIs, with templates that take
them at the beginning only, drop them, move them, or want roles that alternate."""

import pytest

from serving import Server

# The role, and what it says: a client's rules, a conversation, more rules in its middle.
TALK = [
    ("system", "Rule one."),
    ("developer", "Rule two."),
    ("user", "Hello."),
    ("user", "Are you there?"),
    ("assistant", "Yes."),
    ("developer", "Rule three."),
    ("user", "How old are you?"),
    ("system", "Rule four."),
]
NAMES = ["qwen2_5", "llama3_1", "qwen3_5_think", "gemma", "gemma3", "cohere", "gptoss"]


@pytest.fixture
def serve():
    made = []

    def start(name):
        made.append(Server(name))
        return made[-1]

    yield start
    for server in made:
        server.close()


def as_messages(talk):
    return [{"role": role, "content": text} for role, text in talk]


def bodies(talk):
    """The same conversation in each API."""
    messages = as_messages(talk)
    return {
        "chat/completions": {"messages": messages},
        "responses": {"input": messages},
        "messages": {"messages": messages, "max_tokens": 9},
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_api_shows_the_model_every_message_in_its_order(serve, name):
    server = serve(name)
    for path, body in bodies(TALK).items():
        answer = server.post(path, **body)
        assert answer.status_code == 200, answer.text
    assert len(server.engine.contexts) == 3 and len({*server.engine.contexts}) == 1
    context = server.engine.contexts[0]
    places = [context.find(text) for _, text in TALK]
    assert -1 not in places and places == sorted(places)


def test_what_qwen3_5_and_gemma_3_get(serve):
    """Qwen3.5 takes one system message, at the beginning; Gemma 3 wants turns that alternate."""
    folded = {
        "qwen3_5_think": [
            ("system", "Rule one.\n\nRule two."),
            ("user", "Hello."),
            ("user", "Are you there?"),
            ("assistant", "Yes."),
            ("user", "Rule three."),
            ("user", "How old are you?"),
            ("user", "Rule four."),
        ],
        "gemma3": [
            ("system", "Rule one.\n\nRule two."),
            ("user", "Hello.\n\nAre you there?"),
            ("assistant", "Yes."),
            ("user", "Rule three.\n\nHow old are you?\n\nRule four."),
        ],
        "gemma": [
            ("user", "Rule one.\n\nRule two.\n\nHello.\n\nAre you there?"),
            ("assistant", "Yes."),
            ("user", "Rule three.\n\nHow old are you?\n\nRule four."),
        ],
    }
    for name, talk in folded.items():
        server = serve(name)
        server.post("chat/completions", messages=as_messages(TALK))
        assert server.engine.contexts == [
            server.engine.tokenizer.apply_chat_template(
                as_messages(talk), tokenize=False, add_generation_prompt=True
            )
        ]


def test_what_no_folding_helps_is_refused_with_the_message_and_the_setting(serve):
    server = serve("gemma3")
    talk = [("system", "Be brief."), ("assistant", "Hello."), ("user", "Hi.")]
    for path, body in bodies(talk).items():
        answer = server.post(path, **body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        for words in ("message 2 of the conversation (assistant)", "must alternate",
                      "model.chat_template"):  # fmt: skip
            assert words in error["message"]
    assert not server.engine.contexts
