"""Self-contained HTML pages: what `spark validate` and `spark report` show to people. Pure: values in, text out.

A page is one file that needs nothing else, neither the network nor a server: styles, the script that sorts tables, and charts
(SVG) stand in it. Every text is escaped where it is put in (`html.element`), so a topic may have any name.
"""
