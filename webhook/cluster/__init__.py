"""The facts of a live cluster, kept up to date outside of the request path.

Small collections are listed once and then watched: Nodes, and, where the policy needs them,
Namespaces, RuntimeClasses and DeviceClasses. ResourceClaims and their templates are looked up when
a Pod names one. A lost connection is taken up again; until then, what was last known stands.

What the service account needs::

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

To count the devices of the estate, which has no part in any decision::

    rules:
      - apiGroups: [""]
        resources: [nodes, pods]
        verbs: [list, watch]
      - apiGroups: [resource.k8s.io]
        resources: [resourceclaims]
        verbs: [list, watch]

Without one of these rights, its facts are unknown: the rules that need them fail closed, and the
log and /readyz say so.
"""
