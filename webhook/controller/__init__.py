"""What writes: certificates, webhook configurations and admission policies; it answers nothing.

Whatever sends a request raises ClusterError (``webhook.kube.errors``) if it fails.
"""
