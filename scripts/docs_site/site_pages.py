"""The site's first page is the README: it also stands at index.html."""

import shutil
from pathlib import Path


def _copy_first_page(app, exception):
    if exception is None and app.builder.name == "html":
        built = Path(app.outdir)
        shutil.copyfile(built / f"{app.config.root_doc}.html", built / "index.html")


def setup(app):
    app.connect("build-finished", _copy_first_page)
    return {"parallel_read_safe": True}
