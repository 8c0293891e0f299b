"""The devices of a cluster, as rules see them: by each name under which a Pod can request them.

Device plugins report devices in the status of Nodes. DRA drivers publish them in ResourceSlices,
and the selectors of DeviceClasses choose among them. What is left of both is what each node offers,
and what each claim requests: ``policies.kubernetes.nodes`` and ``.claims`` have the types.
"""
