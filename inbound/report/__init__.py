"""Self-contained HTML pages: what `spark validate` and `spark report` show to people. Pure: values in, text out.

A page is one file that loads nothing: styles, the script that sorts tables, and charts (SVG) stand in it. Every text is
escaped where it is put in (`page.element`), so a topic may have any name. The room knows no Spark, ledger or server.

Begin with `proof_page.py`; `report_page.py` is the other page. `page.py` has the frame, tables and elements, `charts.py`
and `timeline.py` draw, `figures.py` has the numbers of a report. The profiling pages are made of `page.py`, too.
"""
