"""Sphinx's settings.  The pages are written by scripts/docs.py; `make docs` does both."""

project = "hub"
copyright = "The hub authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "hub"
html_show_sphinx = False
html_copy_source = False
smartquotes = False
highlight_language = "none"
add_module_names = False
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 100
suppress_warnings = ["ref.python"]  # a bare name in a signature (`device`) that several modules have is no link
python_display_short_literal_types = True
