"""Reports: one module for each format, with a function for each command that has the format.

``json.audit(report)`` returns the report of ``gpufence audit``. ``check`` is a class, which returns
text for each object as it comes. ``content`` has what is reported, and ``output`` writes the
reports of a run.
"""
