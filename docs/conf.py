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
# The site is built without a network, so what others document is no link.
nitpick_ignore_regex = [(r"py:.*", r"(?!inbound\.).*"), (r"py:.*", r"inbound\..*\.T")]
# In signatures of what is public, and nobody's business.
_INTERNAL = (
    "config.kafka_channel.KafkaChannel",
    "config.zookeeper_models.ZooKeeperConfig",
    "controller.kafka_controller.Timing",
    "controller.kazoo_zk.KazooZooKeeper",
    "controller.reset_offset.reconciler.Reconciler",
    "controller.reset_offset.signals.Watches",
    "controller.reset_offset.states.Event",
    "controller.reset_offset.states.Note",
    "coordinators.nodes.BadNodeError",
    "coordinators.nodes.MemberInfo",
    "kafka.base.Fetched",
    "kafka.base.LogClient",
    "kafka.base.LogRange",
    "kafka.base.Poll",
    "kafka.base.TopicMeta",
    "kafka.mirror_base.MirrorClient",
    "ledger.memory.MemoryLedger",
    "channel.position.ReadTo",
    "processors.batch.Verb",
    "processors.spans.Tracing",
    "testing.world.Consumer",
    "testing.zookeeper.Delivery",
    "testing.zookeeper_tree.Commit",
    "testing.zookeeper_tree.Who",
)
nitpick_ignore = [("py:class", f"inbound.{name}") for name in _INTERNAL]

# -- HTML
html_theme = "furo"
html_title = f"inbound {version}"
html_static_path = ["_static"]
html_css_files = ["inbound.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
