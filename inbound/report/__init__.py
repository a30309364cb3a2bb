"""Self-contained HTML pages of `spark validate` and `spark report`. Pure.

A page is one file that loads nothing: it contains styles, the script that sorts tables, and charts (SVG). `page.element`
escapes every text, so a topic may have any name. The room knows no Spark, ledger or server.

Begin with `proof_page.py`; `report_page.py` is the other page. `page.py` has the frame, tables and elements, `charts.py`
and `timeline.py` draw, `figures.py` has the numbers of a report. The profiling pages use `page.py`, too.
"""
