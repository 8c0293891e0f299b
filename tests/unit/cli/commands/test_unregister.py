"""What the break-glass says where it breaks nothing."""

from __future__ import annotations

import pytest

from fake_apiserver import FakeKubeApi
from policies.shipped import shipped_policy
from webhook.controller.cel.configurations import Registration, configurations
from webhook.controller.leader_election import PAUSED, lease_path
from webhook.controller.registrar import KINDS
from webhook.tools.cli.commands.unregister import break_glass


class _Api(FakeKubeApi):
    """A release called gpufence in namespace fence, whose replicas write what is deleted again."""

    def __init__(self, *, replicas: bool) -> None:
        super().__init__()
        self._replicas = replicas
        service = ("fence", "gpufence", 443)
        for configuration in configurations(shipped_policy(), Registration(service=service)):
            path = KINDS[configuration["kind"]]
            self.objects[path] = {"items": [{"metadata": {"name": "other"}}, configuration]}
            self.objects[f"{path}/gpufence"] = configuration

    async def delete(self, path: str) -> bool:
        if self._replicas:
            return path in self.objects
        return await super().delete(path)


async def test_unregister_reports_a_release_of_another_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not await break_glass(_Api(replicas=False), "fence", "mine", 0)
    output = capsys.readouterr()
    assert "MutatingWebhookConfiguration mine: not found." in output.out
    assert output.err == "Release gpufence is still registered. Add --name gpufence.\n"


async def test_unregister_reports_replicas_in_another_namespace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not await break_glass(_Api(replicas=True), "default", "gpufence", 0.01)
    output = capsys.readouterr()
    assert "Lease default/gpufence: not found, so there is no replica to pause." in output.out
    assert output.err == (
        "Replicas with another Lease write the configurations again. Add --namespace fence.\n"
    )


async def test_unregister_pauses_replicas_through_the_lease(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = _Api(replicas=False)
    await api.create(lease_path("fence"), {"metadata": {"name": "gpufence"}})
    assert await break_glass(api, "fence", "gpufence", 0)
    assert PAUSED in api.objects[lease_path("fence", "gpufence")]["metadata"]["annotations"]
    output = capsys.readouterr()
    assert output.out.count(": deleted.") == len(KINDS)
    assert output.err == ""
