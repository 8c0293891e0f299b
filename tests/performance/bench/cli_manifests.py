"""The manifests that command lines are measured over: Deployments as people write them."""

from __future__ import annotations

from pathlib import Path

TRESPASSING = 50
"""One in so many Deployments tolerates the taint of GPU nodes and requests none."""

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


def write(folder: Path, count: int) -> dict[str, Path]:
    """Write as many Deployments, once into a directory of files and once into one file.

    One in five requests a GPU. Returns where they are, by what that is called.
    """
    many, one = folder / f"many-{count}", folder / f"all-{count}.yaml"
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
