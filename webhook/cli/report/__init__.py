"""Reports: one module for each format, with a function for each command that has the format.

``json.check(report)`` yields the report of ``gpufence check`` as pieces of text, ``json.audit``
that of ``gpufence audit``. The module ``text`` yields lines instead, which a terminal colors and
wraps. ``content`` has what is reported, and ``output`` writes the reports of a run.
"""
