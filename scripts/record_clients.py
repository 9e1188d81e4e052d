"""Records what clients send to a model: the fixtures tests/generation/clients/*.json.

    npm install --prefix DIR @anthropic-ai/claude-code @openai/codex zod ai @ai-sdk/openai \
        @ai-sdk/openai-compatible @ai-sdk/anthropic
    PATH=DIR/node_modules/.bin:$PATH python scripts/record_clients.py DIR FIXTURE …

runs each fixture's command, whose file is the fixture's `program`, and writes its requests anew.
A server on this machine answers as `agentsgym serve-model` does, and takes every body: the first
request gets calls of a tool that it offers, a request with results a text.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from agentsgym.generation.serving.chat import ChatBody
from agentsgym.generation.serving.messages import MessagesBody
from agentsgym.generation.serving.responses import ResponsesBody
from agentsgym.generation.serving.wire import Reply, event
from agentsgym.types import Answer, Message
from agentsgym.types.messages import tool_call

HEADERS = ("anthropic-version", "anthropic-beta", "user-agent")
LONGEST = 160  # characters of a text in a fixture
APIS = {"completions": ChatBody, "responses": ResponsesBody, "messages": MessagesBody}
CALLS: dict[str, list[dict[str, Any]]] = {
    "lookup": [{"name": "Ann"}, {"name": "Bob"}],
    "Bash": [{"command": "echo 58", "description": "Add the ages"}],
    "exec_command": [{"cmd": "echo 58"}],
}
RESULTS = re.compile(r'"tool_result"|"role": "tool"|call_output"|Observation:')
COUNTER = itertools.count()


def answer_to(body: dict[str, Any]) -> Answer:
    """Calls if the body has tools and no results yet; else a text, or the call that ends."""
    names = {(tool.get("function") or tool).get("name") for tool in body.get("tools", ())}
    if RESULTS.search(json.dumps((body.get("messages") or body["input"])[1:])):
        made = [("final_answer", {"answer": "58"})] if "final_answer" in names else []
    else:
        made = [(name, given) for name in CALLS if name in names for given in CALLS[name]]
    code = "stop" in body and not names  # smolagents' agent that writes code
    if not made:
        return Answer(Message("assistant", "<code>\nfinal_answer(58)\n</code>" if code else "58"))
    calls = tuple(tool_call(f"call_{next(COUNTER)}", name, given) for name, given in made)
    return Answer(Message("assistant", "", calls))


def response_events(whole: dict[str, Any]) -> Iterator[bytes]:
    """A stream of Responses."""
    number = itertools.count()

    def made(kind: str, **data: Any) -> bytes:
        kind = f"response.{kind}"
        return event({"type": kind, "sequence_number": next(number), **data}, kind)

    yield made("created", response={**whole, "output": []})
    for i, item in enumerate(whole["output"]):
        yield made("output_item.added", output_index=i, item=item)
        for part in item.get("content", ()):
            at = {"output_index": i, "content_index": 0, "item_id": item["id"]}
            yield made("output_text.delta", **at, delta=part["text"], logprobs=[])
        yield made("output_item.done", output_index=i, item=item)
    yield made("completed", response=whole)


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kept: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {key: self.headers[key] for key in HEADERS if key in self.headers}
        self.kept.append({"path": self.path, "headers": headers, "body": sent})
        form = APIS[self.path.partition("?")[0].rpartition("/")[2]]
        body = form.model_construct(model=sent["model"])
        reply = Reply(f"{next(COUNTER)}", 1, sent["model"], answer_to(sent))
        content, kind = json.dumps(whole := body.answer(reply)).encode(), "application/json"
        if sent.get("stream"):
            events = response_events(whole) if form is ResponsesBody else body.events(reply)
            content, kind = b"".join(events), "text/event-stream"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def shortened(value: Any) -> Any:
    """A body whose long texts are cut; everything else stays."""
    if isinstance(value, dict):
        return {key: shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shortened(one) for one in value]
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]} [{len(value) - LONGEST} characters more]"
    return value


def record(fixture: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The requests of a fixture's command, with the names of this machine replaced."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    Recorder.kept.clear()
    if "program" in fixture:
        (folder / fixture["command"][1]).write_text("\n".join(fixture["program"]))
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "DISABLE_TELEMETRY": "1"}
    variables |= {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    variables |= {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}
    variables |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    command = [part.replace("{url}", url) for part in fixture["command"]]
    none = subprocess.DEVNULL
    subprocess.run(command, env=variables, cwd=folder, stdin=none, check=True, timeout=300)
    text = json.dumps(shortened(Recorder.kept)).replace(str(folder), "/play")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}", "drawn", text)
    requests = json.loads(text.replace(os.uname().release, "6.1").replace(url, "http://server"))
    for before, after in reversed(list(itertools.pairwise(requests))):
        same = {"tools", "system"} & {
            key for key, value in after["body"].items() if value == before["body"].get(key)
        }
        after["body"] |= dict.fromkeys(same, "as before")
    return requests


if __name__ == "__main__":
    for path in map(Path, sys.argv[2:]):
        fixture = json.loads(path.read_text())
        fixture["requests"] = record(fixture, Path(sys.argv[1]).resolve())
        path.write_text(json.dumps(fixture, indent=1, ensure_ascii=False) + "\n")
