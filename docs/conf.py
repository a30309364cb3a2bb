"""The docs site: Sphinx over the Markdown pages where they are, so that a link is the same in the site and on a code host.

The source folder is the repository (`sphinx-build -c docs .`), which is why README.md may link docs/reset.md, and that
../SECURITY.md. `scripts/docs_site.py` builds it.
"""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT)]

import inbound  # noqa: E402  (from the checkout, wherever this is run)

project = "inbound"
author = "the authors of inbound"
version = release = inbound.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "scripts.docs_extension"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/**/*.md",
    "docs/**/*.rst",
    "examples/*/README.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
# Without them all folders are searched, and the links inbound/<layer> are followed.
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "inbound",
    "tests",
    "integration",
    "benchmarks",
    "*.egg-info",
    "**/__pycache__",
]

# -- Markdown
myst_heading_anchors = 4  # as a code host makes them
myst_links_external_new_tab = False
suppress_warnings: list[str] = []
highlight_language = "none"

# -- the API, from docstrings
default_role = "literal"  # docstrings here put code in single backticks
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
nitpicky = True
# The site is built without a network, so names of other projects are no links.
nitpick_ignore_regex = [(r"py:.*", r"(?!inbound\.).*"), (r"py:.*", r"inbound\..*\.T")]
# Classes that public signatures name and the site does not describe, wherever they stand.
_INTERNAL = (
    "Arrival",
    "BadNodeError",
    "Commit",
    "ConditionNote",
    "Consumer",
    "Fetched",
    "Gone",
    "KafkaChannel",
    "KafkaPorts",
    "KazooZooKeeper",
    "LogClient",
    "LogRange",
    "MemberInfo",
    "MemoryLedger",
    "MirrorClient",
    "Poll",
    "ReadTo",
    "Reconciler",
    "ResetEvent",
    "SinkChoice",
    "StrictModel",
    "Timing",
    "TopicMeta",
    "Tracing",
    "Verb",
    "Watches",
    "Who",
    "Witness",
    "ZooKeeperConfig",
    "ZooKeeperPorts",
)
nitpick_ignore_regex += [("py:class", rf"inbound\.[a-z_.]+\.({'|'.join(_INTERNAL)})")]

# -- HTML
html_theme = "furo"
html_title = f"inbound {version}"
html_static_path = ["_static"]
html_css_files = ["inbound.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
