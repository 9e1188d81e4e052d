"""The pictures of docs/viewer.md, made in Chromium from a run and an evaluation:

    agentsgym train quickstart threads=1 train.max_steps=24 eval.rollouts=256 --output RUN
    agentsgym eval agent:optimal --env Explore --rollouts 16 env_config.episodes_per_trial=2 \
        env_config.free_shots=1 env_config.carry=full --output TRIAL
    python scripts/screenshots.py RUN TRIAL [--into docs/images]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from agentsgym.report.stored import Source
from agentsgym.report.viewer.file import write_page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import chromium, open_page, resize, wait

WAITING = "return document.querySelector(arguments[0]) !== null"

# Picture → which run, where on the page, what must be there, width, height.
PICTURES = {
    "viewer-run": ("run", "#/run", ".chart canvas", 1280, 900),
    "viewer-tokens": ("run", "RECORDED/tokens", ".t.a", 1280, 560),
    "viewer-conversation": ("trial", "#/rollout/0/eval-0/1", ".episode.free", 1000, 800),
    "viewer-compare": ("run", "#/compare", ".pair .turn", 1280, 900),
}


def main() -> None:
    """Make every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("trial", type=Path)
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        pages = {}
        for name in ("run", "trial"):
            pages[name] = Path(folder) / f"{name}.html"
            write_page(pages[name], [Source(getattr(args, name))])
        recorded = find_recorded(driver, pages["run"])
        for picture, (name, place, selector, width, height) in PICTURES.items():
            resize(driver, width, height)
            open_page(driver, pages[name], place.replace("RECORDED", recorded))
            wait(driver, WAITING, selector)
            time.sleep(0.5)  # charts and fonts
            driver.execute_script("document.activeElement.blur()")
            driver.save_screenshot(str(args.into / f"{picture}.png"))
            print(args.into / f"{picture}.png")


def find_recorded(driver, page) -> str:
    """The place of the last rollout in the page with the trainer's numbers and several actions."""
    open_page(driver, page, "#/rollouts")
    driver.execute_script(
        "const field = document.querySelector('[name=marked]'); field.value = 'recorded';"
        "field.dispatchEvent(new Event('change'));"
        "document.querySelector('button.c-steps').click()"
    )
    driver.execute_script("document.querySelector('.virtual-row').click()")
    return wait(driver, "return location.hash.startsWith('#/rollout/') && location.hash")


if __name__ == "__main__":
    main()
