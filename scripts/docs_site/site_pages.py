"""Where the site differs from GitHub: the README is the index, and folders have no listings."""

import re
import shutil
from pathlib import Path

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+)\)")


def without_folders(text: str, page: Path) -> str:
    """The page's text in which a link to a folder is its words alone."""

    def kept(link: re.Match[str]) -> str:
        return link[1] if (page.parent / link[2]).is_dir() else link[0]

    return _LINK.sub(kept, text)


def _read(app, docname, source):
    source[0] = without_folders(source[0], Path(app.env.doc2path(docname)))


def _copy_first_page(app, exception):
    if exception is None and app.builder.name == "html":
        built = Path(app.outdir)
        shutil.copyfile(built / f"{app.config.root_doc}.html", built / "index.html")


def setup(app):
    app.connect("source-read", _read)
    app.connect("build-finished", _copy_first_page)
    return {"parallel_read_safe": True}
