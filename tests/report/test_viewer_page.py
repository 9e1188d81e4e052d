"""The viewer's page: what it contains, and what it can never contain."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from tokenizers import Tokenizer, decoders, models
from typer.testing import CliRunner

from agentsgym.cli.app import app
from agentsgym.envs import ConfigError
from agentsgym.report.credit import compare_credit
from agentsgym.report.pieces import load_pieces
from agentsgym.report.stored import Source
from agentsgym.report.viewer.file import write_page
from agentsgym.runs.files import read_rollouts
from viewer_runs import HOSTILE, make_hostile_run, make_run


class Parts(HTMLParser):
    """The scripts, styles and policy of a page, as a browser finds them."""

    def __init__(self, text):
        super().__init__()
        self.data, self.programs, self.styles, self.policy = {}, [], [], ""
        self.tags = set()
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        if tag in ("script", "style"):
            self._open = (tag, attributes)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_data(self, text):
        if self._open is None:
            return
        tag, attrs = self._open
        if attrs.get("type") == "application/json":
            self.data[attrs["id"]] = text
        elif tag == "script":
            self.programs.append(text)
        else:
            self.styles.append(text)

    def handle_endtag(self, tag):
        self._open = None

    def value(self, name):
        return json.loads(gzip.decompress(base64.b64decode(json.loads(self.data[name]))))


@pytest.fixture
def run(tmp_path, plain_tokenizer):
    return make_run(tmp_path / "run", plain_tokenizer)


def written(tmp_path, *sources, most=1000):
    page = write_page(tmp_path / "page.html", sources, most)
    return page, Parts((tmp_path / "page.html").read_text(encoding="utf-8"))


def test_the_page_contains_the_run(run, tmp_path):
    page, parts = written(tmp_path, Source(run))
    (source,) = parts.value("overview")["sources"]
    assert page.rollouts == page.total == 3 * 8 + 2 * 6
    assert source["summary"]["before"]["win_rate"] == 0.25
    assert source["metrics"]["step"] == [1, 2, 3]
    assert source["metrics"]["values"]["entropy"] == [1.0, 0.5, 0.333333]
    names = [one["id"] for one in source["sets"]]
    assert names == ["before-0", "train-0", "train-1", "train-2", "after-3"]
    entry = parts.value("set/0/train-0")["rollouts"][5]
    assert (entry["group"], entry["rollout"], entry["task"]) == (1, 1, "word 1")
    block = parts.value("block/0/train-0/0")
    assert len(block["rollouts"]) == 8
    detail = block["rollouts"][5]
    assert detail["seed"] == str(2**60 + 1)  # a browser would round the number
    assert [len(e["steps"]) for e in detail["episodes"]] == [2, 3]
    (row,) = detail["rows"]
    sampled = sum(stop - start for _, _, start, stop in row["spans"])
    assert len(row["logprobs"]) == len(row["rewards"]) == sampled > 0
    text = "".join(block["pieces"][str(token)] for token in row["ids"])
    assert text.startswith("Answer 0: no.\nIs it thing 0?Guess now.\n[scout]")


def test_credit_of_every_estimator_is_that_of_the_whole_group(run, tmp_path):
    _, parts = written(tmp_path, Source(run))
    details = parts.value("block/0/train-1/0")["rollouts"]
    rollouts = list(read_rollouts(run, "train"))[8:16]
    for line in compare_credit([r for r in rollouts if r.group == 1]):
        shown = details[4 + line.rollout]["episodes"][line.episode]["steps"][line.step]["credit"]
        assert shown.pop("trial_cv") is shown.pop("gae") is None
        assert shown == pytest.approx(dict(line.credit), rel=1e-4)


def test_credit_that_needs_the_policy_is_the_stored_one(run, tmp_path):
    (run / "config.yaml").write_text("env: Puzzle\ntrain: {advantage_estimator: trial_cv}\n")
    _, parts = written(tmp_path, Source(run))
    for detail in parts.value("block/0/train-1/0")["rollouts"]:
        (row,) = detail["rows"]
        for episode, step, start, _ in row["spans"]:
            credit = detail["episodes"][episode]["steps"][step]["credit"]
            places = [p for _, _, first, stop in row["spans"] for p in range(first, stop)]
            assert abs(credit["trial_cv"]) == 0.5
            assert credit["trial_cv"] == row["advantages"][places.index(start)]


def test_nothing_that_a_run_says_is_in_the_html(tmp_path, plain_tokenizer):
    run = make_hostile_run(tmp_path / "<img src=x onerror=alert(7)>", plain_tokenizer)
    _, parts = written(tmp_path, Source(run))
    assert parts.tags <= {
        "html", "head", "meta", "link", "title", "style", "body", "div", "p", "script",
    }  # fmt: skip
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not [hostile for hostile in HOSTILE.values() if hostile in text]
    assert all(re.fullmatch(r'"[A-Za-z0-9+/=]+"', data) for data in parts.data.values())
    assert all(re.fullmatch(r"[\w/-]+", name) for name in parts.data)
    texts = [
        r["episodes"][0]["steps"][0]["action"] for r in parts.value(next_block(parts))["rollouts"]
    ]
    assert HOSTILE["closing"] in texts and HOSTILE["ansi"] in texts


def next_block(parts):
    return next(name for name in parts.data if name.startswith("block/"))


def test_the_policy_allows_these_scripts_and_styles_and_nothing_else(run, tmp_path):
    _, parts = written(tmp_path, Source(run))

    def hashes(texts):
        return {
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for text in texts
        }

    rules = dict(rule.strip().split(" ", 1) for rule in parts.policy.split(";"))
    assert rules["default-src"] == "'none'" and "connect-src" not in rules
    assert set(rules["script-src"].split()) == hashes(parts.programs)
    assert set(rules["style-src"].split()) == hashes(parts.styles)
    assert rules["require-trusted-types-for"] == "'script'"
    assert not re.search(r"https?://(?!github\.com/leeoniya)", "".join(parts.programs))


def test_a_large_run_gives_a_sample_of_whole_groups(run, tmp_path):
    page, parts = written(tmp_path, Source(run), most=22)
    assert page.rollouts < page.total == 36
    names = ("before-0", "train-1", "after-3")
    sets = {name: parts.value(f"set/0/{name}") for name in names}
    assert [r["group"] for r in sets["train-1"]["rollouts"]] == [0, 0, 0, 0]
    assert sets["train-1"]["total"] == 8
    before, after = ({r["key"] for r in sets[name]["rollouts"]} for name in ("before-0", "after-3"))
    assert before == after and len(before) >= 3  # the same tasks, so that they can be compared


def test_a_page_of_some_training_steps_has_these_and_the_evaluations(run):
    result = CliRunner().invoke(app, ["view", str(run), "--steps", "1", "--rollouts", "0"])
    assert result.exit_code == 0, result.output
    assert "20 rollouts" in result.output and "sample" in result.output
    parts = Parts((run / "view.html").read_text(encoding="utf-8"))
    lists = [name for name in parts.data if name.startswith("set/")]
    assert lists == ["set/0/before-0", "set/0/train-1", "set/0/after-3"]
    (source,) = parts.value("overview")["sources"]
    assert [one["id"] for one in source["sets"] if one["omitted"]] == ["train-0", "train-2"]


def test_damaged_files_are_named_and_the_rest_is_shown(run, tmp_path):
    (run / "summary.json").write_text("[]")
    shard = run / "rollouts" / "train-000001.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    _, parts = written(tmp_path, Source(run))
    (source,) = parts.value("overview")["sources"]
    assert "summary.json is damaged" in source["problems"][0]
    assert "damaged" in parts.value("set/0/train-1")["problem"]
    assert parts.value("set/0/train-2")["problem"] is None


def test_a_directory_with_links_out_of_it_is_not_read(run, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("my own password")
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to(secret)
    with pytest.raises(ConfigError, match=r"config\.yaml is a link to .*--trust"):
        Source(run)
    _, parts = written(tmp_path, Source(run, trust=True))
    (source,) = parts.value("overview")["sources"]
    assert "password" in source["config"] and len(source["sets"]) == 5


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="neither a run nor an evaluation"):
        Source(tmp_path)


def test_parts_of_characters_are_shown_as_bytes(tmp_path):
    vocabulary = {"<unk>": 0, "▁the": 1, "<0x0A>": 2, "<0xE2>": 3}
    core = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    core.save(str(tmp_path / "tokenizer.json"))
    pieces = load_pieces(tmp_path)
    assert pieces.of([1, 2, 3, 99]) == {1: " the", 2: "\n", 3: "\\xe2", 99: "⟨99⟩"}


def test_a_damaged_tokenizer_leaves_numbers_and_a_named_one_is_an_error(run, tmp_path):
    (run / "model" / "tokenizer.json").write_text("{")
    assert Source(run).pieces.of([5]) == {5: "⟨5⟩"}
    with pytest.raises(ConfigError, match="is not a tokenizer"):
        write_page(run / "page.html", [Source(run, tokenizer=run / "model")])
