"""The namespaces that gpufence's webhook configurations exclude.

API servers send no admission requests from them. Files and a live cluster are therefore judged
with these namespaces excluded; the webhook itself judges every request that it receives.
"""

from __future__ import annotations

ALWAYS_EXCLUDED = frozenset(
    {
        "kube-system",
        "calico-system",
        "kube-flannel",
        "openshift-multus",
        "openshift-ovn-kubernetes",
        "tigera-operator",
    }
)
"""Excluded whatever the policy says: the namespaces that a cluster needs to start again.

Besides kube-system, these are the network plugins whose agents run in a namespace of their own.
Their Pods tolerate every taint, and a new node needs them before it can run a replica of gpufence.
"""
