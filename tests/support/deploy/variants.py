"""Values that people install with: each is linted, rendered, and put to the API server."""

from __future__ import annotations

from deploy.chart import Values

AMD: Values = {
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
}

VARIANTS: dict[str, Values] = {
    "default": {},
    "as a plain manifest": {"createNamespace": True},
    "one replica": {"replicas": 1},
    "an autoscaler": {"autoscaling": {"enabled": True, "maxReplicas": 6}},
    "an image by digest from a registry of one's own": {
        "image": {
            "repository": "registry.example/platform/gpufence",
            "digest": f"sha256:{'0' * 64}",
        },
        "imagePullSecrets": [{"name": "registry"}],
    },
    "everything for Prometheus and Grafana": {
        "metrics": {
            "port": 9090,
            "serviceMonitor": {
                "enabled": True,
                "interval": "1m30s",
                "labels": {"release": "kube-prometheus-stack"},
            },
            "prometheusRule": {"enabled": True, "labels": {"release": "kube-prometheus-stack"}},
            "dashboard": {"enabled": True},
        }
    },
    "no network policy": {"networkPolicy": {"enabled": False}},
    "a narrow network policy": {
        "networkPolicy": {
            "webhookFrom": [{"ipBlock": {"cidr": "172.16.0.0/28"}}],
            "metricsFrom": [],
            "apiServerPorts": [16443],
        }
    },
    "EKS with a network of its own": {"hostNetwork": True, "webhook": {"port": 10270}},
    "a private GKE cluster": {"webhook": {"port": 10250}},
    "OpenShift picks the ids": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    },
    "no system priority": {"priorityClassName": ""},
    "a place of its own": {
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
    },
    "AKS leaves the configurations alone": {
        "registration": {"annotations": {"admissions.enforcer/disabled": "true"}}
    },
    "let past what cannot be asked about": {
        "policy": {"failurePolicy": "Ignore"},
        "registration": {
            "timeoutSeconds": 1,
            "excludeNamespaces": ["cattle-system", "longhorn-system"],
        },
    },
    "no cluster facts": {"clusterFacts": False},
    "clients of an authority in a Secret": {"webhook": {"clientCA": {"secret": "api-servers"}}},
    "clients of an authority in a ConfigMap": {
        "webhook": {"clientCA": {"configMap": "api-servers", "key": "bundle.pem"}}
    },
    "devices are not counted": {"metrics": {"devices": False}},
    "configurations in Git, certificates of somebody else": {
        "controller": {"enabled": False},
        "certificates": {"source": "secret", "secretName": "gpufence-tls"},
    },
    "certificates of cert-manager": {
        "certificates": {
            "source": "certManager",
            "issuerRef": {"name": "platform", "kind": "ClusterIssuer"},
        }
    },
    "an authority that is succeeded each month": {
        "certificates": {"caLifetime": "1080h", "lifetime": "72h30m"}
    },
    "an audit each hour": {
        "audit": {
            "enabled": True,
            "schedule": "0 * * * *",
            "timeZone": "Europe/Berlin",
            "output": "json",
            "failOn": "enforce",
        }
    },
    "an audit without reports": {"audit": {"enabled": True, "policyReports": False}},
    "a rule that only warns, one that is off": {
        "policy": {"rules": {"pool-trespass": "warn", "device-leak": False}}
    },
    "the user is left to the image": {"policy": {"hardening": {"runAsUser": "none"}}},
    "ids beyond a million": {"policy": {"hardening": {"runAsUser": 1000650000}}},
    "another vendor": {"policy": AMD},
    "a name of its own": {"fullnameOverride": "gpu-fence"},
}
