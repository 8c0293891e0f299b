"""The facts of a live cluster, kept up to date outside of the request path.

Small collections are listed once and then watched: Nodes, and, where the policy needs them,
Namespaces, RuntimeClasses and DeviceClasses. ResourceClaims and their templates are looked up when
a Pod names one. After a lost connection, gpufence continues with the last known state and
reconnects.

Required permissions of the service account::

    rules:
      - apiGroups: [""]
        resources: [nodes]
        verbs: [list, watch]
      - apiGroups: [""]
        resources: [namespaces]
        verbs: [get, list, watch]
      - apiGroups: [node.k8s.io]
        resources: [runtimeclasses]
        verbs: [list, watch]
      - apiGroups: [resource.k8s.io]
        resources: [deviceclasses]
        verbs: [list, watch]
      - apiGroups: [resource.k8s.io]
        resources: [resourceclaims, resourceclaimtemplates]
        verbs: [get]

Permissions for the device metrics, which no decision uses; without cluster facts, nodes as well::

    rules:
      - apiGroups: [""]
        resources: [pods]
        verbs: [list, watch]
      - apiGroups: [resource.k8s.io]
        resources: [resourceclaims]
        verbs: [list, watch]

Without a permission, its facts are unknown: the rules that need them fail closed, and the log and
/readyz report it.
"""
