"""Images that are known to fail as a user that they were not built for."""

from __future__ import annotations

from typing import NamedTuple


class KnownImage(NamedTuple):
    """An image by the end of its repository, what fails, and the likeliest fix.

    ``settled_by`` names an environment variable that avoids the failure.
    """

    repository: str
    failure: str
    remediation: str
    source: str
    settled_by: str = ""


KNOWN_IMAGES = (
    KnownImage(
        "vllm/vllm-openai",
        "PyTorch looks up the name of the user, and fails with KeyError: getpwuid(): uid not found",
        "Set runAsUser: 2000, the user of newer images, or set the variables USER and HOME, with "
        "HOME on a writable volume",
        "vllm-project/vllm#31959, ai-dynamo/dynamo#12457",
        "USER",
    ),
    KnownImage(
        "huggingface/text-generation-inference",
        "its Python is below /root, which only root can read",
        "Use an image that is built for non-root users",
        "huggingface/text-generation-inference#3082",
    ),
    KnownImage(
        "ollama/ollama",
        "it writes to .ollama in its home directory, which is / for an unknown user",
        "Mount a volume that the user can write to, and set the variable HOME to its path",
        "ollama/ollama#5986",
        "HOME",
    ),
    KnownImage(
        "nvidia/tritonserver",
        "it writes to directories that belong to its user 1000",
        "Set runAsUser: 1000 under spec.securityContext",
        "triton-inference-server/server#2600",
    ),
    *(
        KnownImage(
            f"jupyter/{name}-notebook",
            "its home directory belongs to user 1000 and group 100",
            "Set runAsUser: 1000 and fsGroup: 100 under spec.securityContext",
            "jupyter/docker-stacks#552",
        )
        for name in ("base", "minimal", "scipy", "datascience", "pytorch", "tensorflow")
    ),
)
"""Add an image with the issue or documentation that reports the failure."""

_BY_NAME = {known.repository.partition("/")[2]: known for known in KNOWN_IMAGES}


def known_image(image: str) -> KnownImage | None:
    """Return what is known of an image: ``registry/repository:tag@digest``."""
    head, _, last = image.rpartition("/")
    known = _BY_NAME.get(last.partition(":")[0].partition("@")[0])
    if known is None or f"/{head}".endswith(f"/{known.repository.partition('/')[0]}"):
        return known
    return None
