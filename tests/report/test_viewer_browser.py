"""The viewer in a real Chromium: what one clicks, what keys do, what hostile texts can't do."""

import pytest

from agentsgym.credit import ESTIMATORS
from agentsgym.report.stored import Source
from agentsgym.report.viewer.file import write_page
from agentsgym.runs.files import RolloutWriter, TokenRecordWriter, read_stored
from agentsgym.types.rows import StepNumbers, TokenRecord
from agentsgym.types.text import clean_text, visible
from browser import (
    CHROMIUM,
    DRIVER,
    MISSING,
    chromium,
    go,
    open_page,
    press,
    requests_of,
    texts,
    wait,
)
from helpers import build_tokenizer
from of_rows import drawn, redrawn
from viewer_runs import HOSTILE, make_hostile_run, make_rollout, make_run


@pytest.fixture(scope="module")
def driver():
    if not (CHROMIUM and DRIVER):
        pytest.skip(MISSING)
    with chromium() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs on the same tasks; one has the trainer's numbers for a rollout of step 0."""
    tokenizer = build_tokenizer(None)
    root = tmp_path_factory.mktemp("runs")
    made = [make_run(root / name, tokenizer, shift=n) for n, name in enumerate(("one", "two"))]
    rollout = next(read_stored(made[0], "train")).rollout
    steps = {
        span.key: StepNumbers(
            tuple(x + 0.25 for x in rollout.rows[0].logprobs[span.start : span.stop]),
            (1.1,) * span.length,
            (0.7,) * span.length,
        )
        for span in rollout.rows[0].spans
    }
    TokenRecordWriter(made[0])([TokenRecord(rollout.session_id, steps)], {"step": 0})
    return made


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "one.html"
    write_page(path, [Source(runs[0])])
    return path


@pytest.fixture(scope="module")
def two(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "two.html"
    write_page(path, [Source(run) for run in runs])
    return path


def no_errors(driver):
    return [line for line in driver.get_log("browser") if line["level"] == "SEVERE"] == []


def fill(driver, name, value):
    """Set a field as typing or choosing does."""
    driver.execute_script(
        "const field = document.querySelector(`[name=${arguments[0]}]`);"
        "field.value = arguments[1];"
        "field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input'))",
        name,
        value,
    )


def click(driver, selector):
    """Click what matches first now: a list may be drawn anew between finding and clicking."""
    driver.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_the_run(driver, page):
    open_page(driver, page)
    assert "25.0\u202f%" in texts(driver, "table.figures td")[2]
    wait(driver, "return document.querySelectorAll('.chart canvas').length >= 2")
    titles = " ".join(texts(driver, "figcaption strong"))
    assert "reward by episode" in titles and "stop reasons" in titles and "entropy" in titles
    assert titles.count("rows begun by the template") == 1
    label = driver.execute_script(
        "return document.querySelector('.chart-body').getAttribute('aria-label')"
    )
    assert "from 0.300 at step 1 to 0.500 at step 3" in label
    assert "truncated 0" in texts(driver, ".constants")[0]
    assert "best without exploring (reference)" in texts(driver, "table.figures th")
    assert "warm start of the new model 24 s" in texts(driver, ".times .key span")
    assert no_errors(driver) and requests_of(driver)[-1].startswith("file://")


def test_filter_sort_and_search(driver, page):
    open_page(driver, page, "#/rollouts")
    count = "return document.querySelector('.count').textContent"
    wait(driver, f"{count}.startsWith('36 of 36')")
    fill(driver, "result", "won")
    won = texts(driver, ".virtual-row .c-win")
    assert won and set(won) == {"won"}
    fill(driver, "set", "train")
    fill(driver, "group", "1")
    assert set(texts(driver, ".virtual-row .c-group")) == {"1"}
    click(driver, "button.quiet")
    fill(driver, "text", "[scout]")
    wait(driver, f"{count}.startsWith('8 of 36 rollouts')")  # the trials of step 0
    assert set(texts(driver, ".virtual-row .c-set")) == {"training 0"}
    click(driver, "button.c-steps")
    steps = [int(text) for text in texts(driver, ".virtual-row .c-steps")]
    assert steps == sorted(steps, reverse=True) and len(set(steps)) == 2
    assert no_errors(driver)


def test_a_rollout_and_its_group(driver, page):
    open_page(driver, page, "#/rollouts")
    fill(driver, "set", "0 train-0")
    click(driver, ".virtual-row")
    wait(driver, "return document.querySelector('.conversation') !== null")
    titles = texts(driver, ".episode > h3")
    assert "Episode 1 (free shot: not scored)" in titles[0] and "Episode 2" in titles[1]
    assert len(texts(driver, ".episode.free")) == 1
    actions = texts(driver, ".turn.action .text")
    assert actions == ["Is it thing 0?", "[scout]", "Is it thing 0?", "[word 0]"]
    badges = " ".join(texts(driver, ".turn.action .chip"))
    assert "reward 1" in badges and "trial +" in badges and "state ⚓1, in 8 steps" in badges
    assert "trial (the run’s)" in texts(driver, "[name=estimator] option")
    fill(driver, "estimator", "grpo")
    wait(driver, "return document.querySelector('.turn.action').textContent.includes('grpo +')")
    assert "answer: no · remaining: 12" in texts(driver, ".notes")[0]
    click(driver, ".member:nth-of-type(2)")
    wait(driver, "return document.querySelector('h2').textContent.endsWith('rollout 1')")
    go(driver, "#/rollout/0/train-0/1/group")
    wait(driver, "return document.querySelectorAll('.column').length === 4")
    assert no_errors(driver)


def colored(driver):
    return driver.execute_script(
        "return [...new Set([...document.querySelectorAll('.t.a')]"
        ".map((e) => getComputedStyle(e).backgroundColor))]"
    )


def test_a_rollout_that_is_not_there_and_an_address_that_stays(driver, page):
    open_page(driver, page, "#/rollout/0/train-1/9.9")
    wait(driver, "return document.querySelector('main').textContent.includes('no such rollout')")
    go(driver, "#/run")
    assert driver.execute_script("return location.hash") == "#/run"
    assert no_errors(driver)


def test_every_coloring_of_the_tokens(driver, page):
    open_page(driver, page, "#/rollout/0/train-0/0/tokens")
    wait(driver, "return document.querySelectorAll('.t.a').length > 10")
    options = driver.execute_script(
        "const { options } = document.querySelector('[name=coloring]');"
        "return [...options].map((option) => [option.value, option.disabled])"
    )
    names = [name for name, _ in options]
    estimators = [f"credit:{name}" for name in ESTIMATORS]
    others = ["reward", "logprob", "trainer", "gap", "ratio", "entropy"]
    assert names == ["mask", "advantage", *estimators, *others]
    assert [name for name, disabled in options if disabled] == ["credit:trial_cv", "credit:gae"]
    seen = {}
    for name in (name for name, disabled in options if not disabled):
        fill(driver, "coloring", name)
        seen[name] = colored(driver)
    assert len(seen["mask"]) == 1 and len(seen["logprob"]) > 3
    assert seen["gap"] != seen["entropy"]
    facts = dict(zip(texts(driver, ".token-facts dt"), texts(driver, ".token-facts dd")))
    assert facts["gap"] == "+0.2500" and facts["ratio"] == "1.1000" and facts["entropy"] == "0.700"
    assert facts["trained"] == "yes" and facts["sampler"].startswith("−1.6000 (p")
    marks = texts(driver, ".step-mark")
    assert marks[0] == "Episode 1 (free shot: not scored) 1 ⚓1"
    assert no_errors(driver)


def test_measured_effects(driver, page):
    """A color of the tokens, a credit of the conversation, and what the policy does else."""
    open_page(driver, page, "#/rollout/0/train-1/0/tokens")
    wait(driver, "return document.querySelectorAll('.t.a').length > 5")
    fill(driver, "coloring", "credit:replay")
    assert len(colored(driver)) == 2
    facts = dict(zip(texts(driver, ".token-facts dt"), texts(driver, ".token-facts dd")))
    assert facts["by replay"] == "−0.125"
    go(driver, "#/rollout/0/train-1/0")
    wait(driver, "return document.querySelector('[name=estimator]') !== null")
    fill(driver, "estimator", "replay")
    talk = "document.querySelector('.conversation')"
    wait(driver, f"return {talk}.textContent.includes('replay −0.125')")
    (line,) = texts(driver, ".replay summary")
    assert line == "effect −0.125 (−0.500 to +0.250), 4 plays from here"
    driver.execute_script("document.querySelector('.replay summary').click()")
    assert texts(driver, ".replay dt") == ["3×, mean reward 0.500", "1×, mean reward 1"]
    assert texts(driver, ".replay dd") == ["Is it thing 0?", "<b>ask</b>"]
    assert no_errors(driver)


def test_keys(driver, page):
    from selenium.webdriver.common.keys import Keys

    open_page(driver, page)
    press(driver, "2")
    wait(driver, "return document.activeElement.getAttribute('role') === 'listbox'")
    press(driver, "j", "j", Keys.ENTER)
    wait(driver, "return location.hash === '#/rollout/0/before-0/2'")
    wait(driver, "return document.querySelector('.conversation') !== null")
    press(driver, "]")
    wait(driver, "return location.hash === '#/rollout/0/before-0/3'")
    wait(driver, "return document.querySelector('h2').textContent.includes('group 3')")
    press(driver, "v")
    wait(driver, "return document.querySelectorAll('.t').length > 0")
    first = driver.execute_script("return document.querySelector('[name=coloring]').value")
    press(driver, "c")
    assert driver.execute_script("return document.querySelector('[name=coloring]').value") != first
    press(driver, Keys.ESCAPE)
    wait(driver, "return location.hash === '#/rollouts'")
    press(driver, "?")
    wait(driver, "return document.querySelector('dialog').open")
    press(driver, Keys.ESCAPE)
    press(driver, "d")
    assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
    driver.execute_script("localStorage.clear()")
    assert no_errors(driver)


def test_compare_two_runs(driver, two):
    open_page(driver, two, "#/compare")
    wait(driver, "return document.querySelectorAll('.pair .turn').length > 0")
    count = texts(driver, ".count")[0]
    verdict = texts(driver, ".verdict")[0]
    assert verdict.startswith("No difference shown: reward +0.000 [−") and "6 pairs in 6" in verdict
    assert count.startswith("6 pairs on this page")
    assert "2 better on the right · 2 better on the left · 2 equal · 4 shown" in count
    differences = texts(driver, ".virtual-row .c-difference")
    assert sorted(differences) == ["+1.000"] * 2 + ["−1.000"] * 2
    assert "they differ" not in " ".join(texts(driver, ".parting"))  # the same words, other rewards
    assert len(texts(driver, ".pair-grid > .step")) == 4
    fill(driver, "which", "better")
    assert set(texts(driver, ".virtual-row .c-difference")) == {"+1.000"}
    fill(driver, "left", "0 before-0")
    fill(driver, "right", "0 train-2")
    wait(driver, "return document.querySelector('.count').textContent.startsWith('2 pairs')")
    assert no_errors(driver)


def test_hostile_texts_run_nothing_and_ask_for_nothing(driver, tmp_path):
    run = make_hostile_run(tmp_path / "<img src=x onerror=alert(8)>", build_tokenizer(None))
    write_page(tmp_path / "page.html", [Source(run)])
    requests_of(driver)
    open_page(driver, tmp_path / "page.html")
    name = driver.execute_script("return document.title")
    assert name == "<img src=x onerror=alert(8)> – agentsgym"
    set_id = (
        driver.execute_script("return document.querySelectorAll('script[id^=block]')[0].id")
        .removeprefix("block/0/")
        .rpartition("/")[0]
    )
    expected = list(HOSTILE.values())
    go(driver, "#/rollouts")
    wait(driver, "return document.querySelectorAll('.virtual-row').length === 9")
    for place, text in enumerate(expected):
        for view in ("", "/tokens", "/group") if place == 1 else ("",):
            go(driver, f"#/rollout/0/{set_id}/{place}{view}")
            wait(
                driver,
                "const [title, tab] = ['h2', '[role=tab][aria-selected=true]']"
                ".map((selector) => document.querySelector(selector)?.textContent ?? '');"
                "return title.endsWith(arguments[0]) && tab.startsWith(arguments[1])",
                f"rollout {place}",
                {"": "Conv", "/tokens": "Tok", "/group": "Gr"}[view],
            )
            if not view:
                assert texts(driver, ".turn.action .text")[0] == visible(clean_text(text))
    go(driver, f"#/rollout/0/{set_id}/7")  # the action of a megabyte
    wait(driver, "return document.querySelector('.turn.action button') !== null")
    assert len(texts(driver, ".turn.action .text")[0]) < 10_000
    click(driver, ".turn.action button")
    assert len(texts(driver, ".turn.action .text")[0]) == 8 << 17
    lazily = "return getComputedStyle(document.querySelector('.text-part')).contentVisibility"
    assert driver.execute_script(lazily) == "auto"  # else the browser lays out all of it, seconds
    made = "return document.querySelectorAll('img, svg, b, iframe').length"
    assert driver.execute_script(made) == 0
    page = (tmp_path / "page.html").as_uri()
    assert {url.split("#")[0] for url in requests_of(driver)} <= {page, "about:blank", "data:,"}
    assert driver.execute_script("return document.title").startswith(
        "<img"
    )  # no alert blocked this
    assert no_errors(driver)


def test_characters_are_shown_as_on_a_terminal(driver, tmp_path):
    """The page's rules for hidden characters are those of agentsgym.types.text."""
    everything = "".join(map(chr, [*range(0x300), *range(0x600, 0x620), *range(0x2000, 0x2070)]))
    everything += "\ufeff\ud800 \udfff\U0001f600"
    rollout = make_rollout(build_tokenizer(None), 0, 0, [[("say", everything, 0.0)]])
    RolloutWriter(tmp_path)([rollout], {"phase": "after", "step": 0, "advantages": None})
    write_page(tmp_path / "page.html", [Source(tmp_path)])
    open_page(driver, tmp_path / "page.html", "#/rollout/0/after-0/0")
    wait(driver, "return document.querySelector('.turn.action') !== null")
    assert texts(driver, ".turn.action .text") == [visible(clean_text(everything))]


def test_characters_of_several_tokens_are_shown_once(driver, tmp_path):
    tokenizer = build_tokenizer(None)
    rollout = make_rollout(tokenizer, 0, 0, [[("say", "né 猫!", 0.0)]])
    damaged = make_rollout(tokenizer, 1, 0, [[("say", "é", 0.0)]])
    row = damaged.rows[0]
    stop = len(row.token_ids) - 1
    spans = [(0, 0, row.spans[0].start, stop)]
    cut = drawn(row, ids=row.token_ids[:stop], logprobs=row.logprobs[:stop], spans=spans)
    tokenizer.save_pretrained(tmp_path / "model")
    played = [rollout, redrawn(damaged, rows=[cut])]
    RolloutWriter(tmp_path)(played, {"phase": "after", "step": 0, "advantages": None})
    write_page(tmp_path / "page.html", [Source(tmp_path)])
    shown = []
    for place in (0, 1):
        open_page(driver, tmp_path / "page.html", f"#/rollout/0/after-0/{place}/tokens")
        wait(driver, "return document.querySelectorAll('.t').length > 0")
        shown.append("".join(texts(driver, ".t")))
    assert shown == ["sayné◦ 猫◦◦!", "say\\xc3"]
