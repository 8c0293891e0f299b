"""``gpufence policy diff``: what a change of a policy does, in Pods."""
