"""Sphinx settings of the docs site: `make docs` builds it from the Markdown pages as they are."""

import sys
from pathlib import Path

import agentsgym

sys.path.insert(0, str(Path(__file__).parent))

project = "agentsgym"
author = "the agentsgym authors"
release = version = agentsgym.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "site_pages",
    "navigation",
    "docstrings",
    "reference",
]

# The source directory is the repository, so that links between pages are those of GitHub.
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/**.md",
    "docs/reference/*.rst",
    "benchmarks/README.md",
    "experiments/README.md",
]
include_patterns += ["examples/cluster/README.md"]
exclude_patterns = [".*", "build", "src", "tests", "scripts", "runs", "evals"]

myst_heading_anchors = 4
smartquotes = False
highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 80

html_theme = "furo"
html_title = "agentsgym"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
