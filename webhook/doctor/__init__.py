"""The doctor: whether an installation works, and how to fix it.

Whatever sends a request raises ClusterError (``webhook.kube.errors``) if it fails.
"""
