"""Values that people install with: each is linted, rendered, and put to the API server.

Values that do not depend on each other stand together.
"""

from __future__ import annotations

from deploy.chart import Values

LABELS = {"release": "kube-prometheus-stack"}

VARIANTS: dict[str, Values] = {
    "default": {},
    "as a plain manifest": {"createNamespace": True},
    "everything for Prometheus and Grafana": {
        "metrics": {
            "port": 9090,
            "serviceMonitor": {"enabled": True, "interval": "1m30s", "labels": LABELS},
            "prometheusRule": {"enabled": True, "labels": LABELS},
            "dashboard": {"enabled": True},
        },
    },
    "a name, a registry and a place of its own, with an autoscaler": {
        "fullnameOverride": "gpu-fence",
        "autoscaling": {"enabled": True, "maxReplicas": 6},
        "image": {
            "repository": "registry.example/platform/gpufence",
            "digest": f"sha256:{'0' * 64}",
        },
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "",
        "nodeSelector": {"node-role.kubernetes.io/infra": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/infra", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "gpufence"}},
            }
        ],
        "podLabels": {"team": "platform"},
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "serviceAccount": {"names": {"replicas": "fence", "controller": "fence-writer"}},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "controller": {"pod": {"podLabels": {"team": "security"}, "tolerations": []}},
    },
    "EKS with a network and certificates of its own": {
        "hostNetwork": True,
        "webhook": {"port": 10270, "clientCA": {"secret": "api-servers"}},
        "networkPolicy": {"enabled": False},
        "controller": {"enabled": False},
        "certificates": {"source": "secret", "secretName": "gpufence-tls"},
        "policy": {"rules": {"pool-trespass": "warn", "device-leak": False}},
    },
    "a private GKE cluster with an audit each hour": {
        "replicas": 1,
        "webhook": {"port": 10250, "clientCA": {"configMap": "api-servers", "key": "bundle.pem"}},
        "networkPolicy": {
            "webhookFrom": [{"ipBlock": {"cidr": "172.16.0.0/28"}}],
            "metricsFrom": [],
            "apiServerPorts": [16443],
        },
        "metrics": {"devices": False},
        "certificates": {"caLifetime": "1080h", "lifetime": "72h30m"},
        "audit": {
            "enabled": True,
            "schedule": "0 * * * *",
            "timeZone": "Europe/Berlin",
            "output": "json",
            "failOn": "enforce",
        },
        "policy": {"hardening": {"runAsUser": "none"}},
    },
    "OpenShift picks the ids": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "audit": {"enabled": True},
        "policy": {"hardening": {"runAsUser": 1000650000}},
    },
    "AKS leaves the configurations alone, cert-manager issues": {
        "registration": {
            "annotations": {"admissions.enforcer/disabled": "true"},
            "timeoutSeconds": 1,
            "excludeNamespaces": ["cattle-system", "longhorn-system"],
        },
        "certificates": {
            "source": "certManager",
            "issuerRef": {"name": "platform", "kind": "ClusterIssuer"},
        },
        "clusterFacts": False,
        "policy": {
            "failurePolicy": "Ignore",
            "pools": [
                {
                    "name": "amd",
                    "resources": ["amd.com/gpu"],
                    "taints": [{"key": "amd.com/gpu"}],
                    "nodeSelector": {"feature.node.kubernetes.io/amd-gpu": "true"},
                }
            ],
            "exceptions": [
                {"namespaces": ["legacy"], "reason": "Moves in January.", "expires": "2027-01-31"}
            ],
        },
    },
}
