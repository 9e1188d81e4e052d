"""The docs site has every page, and its build has no link and no name that leads nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "scripts/docs_site"
sys.path.append(str(SITE))

import navigation  # noqa: E402
import public_names  # noqa: E402


def pages_of_the_docs():
    paths = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")}
    return paths - {navigation.CONTENTS}


def test_every_page_is_in_the_list_that_is_the_navigation():
    listed = [path for pages in navigation.sections(ROOT).values() for _, path in pages]
    missing = pages_of_the_docs() - set(listed)
    assert not missing, f"add a line `- [Title](path)` to docs/README.md for {sorted(missing)}"
    assert len(set(listed)) == len(listed)


def test_the_reference_has_every_public_name():
    from test_public_api import PACKAGES, named

    documented = public_names.public_names(ROOT)
    everywhere = {name for names in documented.values() for name in names}
    for package in PACKAGES:
        assert set(named(package)) <= everywhere


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    command = "sphinx -q -W --keep-going -E -c scripts/docs_site -d".split()
    done = subprocess.run(
        [sys.executable, "-m", *command, tmp_path / "cache", ".", tmp_path / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
