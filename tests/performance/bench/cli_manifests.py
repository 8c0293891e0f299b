"""The manifests of the command line benchmarks: realistic Deployments."""

from __future__ import annotations

from pathlib import Path

TRESPASSING = 50
"""One in this many Deployments tolerates the GPU taint without a GPU request."""

_MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{number}
  namespace: team-{team}
  labels:
    app.kubernetes.io/name: app-{number}
    app.kubernetes.io/part-of: suite
spec:
  replicas: 2
  selector:
    matchLabels:
      app.kubernetes.io/name: app-{number}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: app-{number}
    spec:
      serviceAccountName: app
{tolerations}      containers:
      - name: main
        image: registry.example/app:{number}
        args: ["--port", "8080", "--verbose"]
        ports:
        - containerPort: 8080
          name: http
        env:
        - name: LOG_LEVEL
          value: info
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        resources:
          limits: {{cpu: "2", memory: 4Gi{gpu}}}
          requests: {{cpu: 500m, memory: 1Gi}}
        readinessProbe:
          httpGet:
            path: /healthz
            port: http
        volumeMounts:
        - name: config
          mountPath: /etc/app
      volumes:
      - name: config
        configMap:
          name: app-{number}
"""
_TOLERATIONS = "      tolerations:\n      - key: nvidia.com/gpu\n        operator: Exists\n"


def write(directory: Path, count: int) -> dict[str, Path]:
    """Write `count` Deployments twice: a file for each, and all in one file.

    One in five requests a GPU. Returns the paths by their title in the report.
    """
    many, one = directory / f"many-{count}", directory / f"all-{count}.yaml"
    many.mkdir()
    with one.open("w") as file:
        for number in range(count):
            text = _manifest(number)
            (many / f"app-{number:05}.yaml").write_text(text)
            file.write(f"---\n{text}")
    return {f"{count:,} files": many, f"{count:,} documents in one file": one}


def _manifest(number: int) -> str:
    return _MANIFEST.format(
        number=number,
        team=number % 20,
        gpu=", nvidia.com/gpu: 1" if number % 5 == 0 else "",
        tolerations=_TOLERATIONS if number % TRESPASSING == 1 else "",
    )
