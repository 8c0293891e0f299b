"""Webhook configurations, leader election, drift, and the certificate Secret.

Whatever sends a request raises ClusterError (``webhook.kube.errors``) if it fails.
"""
