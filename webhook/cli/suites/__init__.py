"""``gpufence test``: suites of cases for a policy."""
