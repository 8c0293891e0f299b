"""The certificate that an API server presents to a webhook: docs/operate/certificates.md."""

from __future__ import annotations

import re
from pathlib import Path

from paths import PROJECT

_PAGE = PROJECT / "docs" / "operate" / "certificates.md"
_DIRECTORY = "/etc/kubernetes/admission"


def configure(directory: Path, pair: tuple[Path, Path]) -> str:
    """Write the two files of the page, and return the API server's flag.

    The API server presents `pair` to the webhook behind the Service of the chart.
    """
    admission, kubeconfig = _block("# admission.yaml"), _block(f"# {_DIRECTORY}/kubeconfig")
    names = {
        f"{_DIRECTORY}/client.crt": str(pair[0]),
        f"{_DIRECTORY}/client.key": str(pair[1]),
        _DIRECTORY: str(directory),
    }
    for file, text in (("admission.yaml", admission), ("kubeconfig", kubeconfig)):
        for documented, actual in names.items():
            text = text.replace(documented, actual)
        (directory / file).write_text(text)
    return f"--admission-control-config-file={directory / 'admission.yaml'}"


def _block(title: str) -> str:
    """Return the page's YAML that begins with a comment."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if block.startswith(title)]
    text: str = block
    return text
