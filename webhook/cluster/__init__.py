"""What is known of a cluster: from watches, lists, a dump or files.

A replica keeps the facts of a live cluster up to date outside of the request path.

Small collections are listed once and then watched: Nodes, and, where the policy needs them,
Namespaces, RuntimeClasses and DeviceClasses. ResourceClaims and their templates are looked up when
a Pod names one. After a lost connection, gpufence continues with the last known state and
reconnects.

The chart's ClusterRole has the permissions. Without one, its facts are unknown: the rules that need
them fail closed, and the log and /readyz report it.
"""
