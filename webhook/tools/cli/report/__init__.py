"""Reports: one module for each format, with a function for each command that has the format.

``json.audit(report)`` yields the text of the report of ``gpufence audit``. ``content`` has what is
reported, and ``output`` writes it.
"""
