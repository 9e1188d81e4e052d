"""The sdist and the wheel: the files of this repository, the same bytes wherever they are built."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import agentsgym

ROOT = Path(__file__).parents[2]
NAME = f"agentsgym-{agentsgym.__version__}"
WHEEL = f"{NAME}-py3-none-any.whl"
PACKED = f"{NAME}.dist-info"
DATED = {"SOURCE_DATE_EPOCH": "1700000000"}


def build(tree, out, *targets):
    """Build a directory's distributions, as `make package` does."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    for target in targets:
        command += ["-t", target]
    subprocess.run(command, cwd=tree, env=os.environ | DATED, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def tracked():
    """The files that are in the repository or that the next commit may add."""
    if not (ROOT / ".git").exists():
        pytest.skip("an sdist has no list of the repository's files")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in names.split("\0") if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tracked, tmp_path_factory):
    """A folder with both distributions, built from a copy of the files."""
    folder = tmp_path_factory.mktemp("here")
    for name in tracked:
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "tree" / name)
    return build(folder / "tree", folder / "dist")


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    """The sdist's directory."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


def test_the_sdist_builds_the_same_wheel_whatever_the_files_times_and_permissions(
    built, unpacked, tmp_path
):
    for path in filter(Path.is_file, unpacked.rglob("*")):
        path.chmod(0o700 if os.access(path, os.X_OK) else 0o600)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    build(unpacked, tmp_path, "wheel")
    assert (tmp_path / WHEEL).read_bytes() == (built / WHEEL).read_bytes()


def test_the_sdist_holds_the_repository(tracked, unpacked):
    files = {str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()}
    assert files == {*tracked, "PKG-INFO"}


def test_the_wheel_holds_the_package_and_its_data(tracked, built):
    files = {name for name in zipfile.ZipFile(built / WHEEL).namelist() if PACKED not in name}
    assert files == {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    assert {"agentsgym/presets/quickstart.yaml", "agentsgym_v1/__init__.py"} <= files


def test_the_wheel_holds_every_license(tracked, built):
    licenses = {name for name in tracked if name.endswith("LICENSE")}
    assert len(licenses) > 1
    held = zipfile.ZipFile(built / WHEEL)
    assert {f"{PACKED}/licenses/{name}" for name in licenses} <= set(held.namelist())
    metadata = Parser().parsestr(held.read(f"{PACKED}/METADATA").decode())
    assert set(metadata.get_all("License-File")) == licenses
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Version"] == agentsgym.__version__
