"""No two services share an event store, however its URL is given."""

import pytest

from services.gateway.settings import Settings as Gateway
from services.kernel.settings import load_settings
from services.reward.settings import Settings as Reward


@pytest.mark.parametrize(
    ("given", "gateway", "reward"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:p@h/db?schema=gateway", "postgresql://u:p@h/db?schema=reward"),
        ("postgresql://h/db?x=1", "postgresql://h/db?x=1&schema=gateway", "postgresql://h/db?x=1&schema=reward"),
        (
            "postgresql://h/{service}?sslmode=off",
            "postgresql://h/gateway?sslmode=off&schema=gateway",
            "postgresql://h/reward?sslmode=off&schema=reward",
        ),
        ("postgresql://h/db?schema=own", "postgresql://h/db?schema=own", "postgresql://h/db?schema=own"),
        ("sqlite:////tmp/{service}.db", "sqlite:////tmp/gateway.db", "sqlite:////tmp/reward.db"),
    ],
)
def test_store_url(monkeypatch: pytest.MonkeyPatch, given: str, gateway: str, reward: str) -> None:
    for name in ("FORGERL_TOKEN", "FORGERL_SECRET"):
        monkeypatch.setenv(name, "x" * 40)
    monkeypatch.setenv("FORGERL_STORE_URL", given)
    assert load_settings(Gateway).store_url == gateway
    assert load_settings(Reward).store_url == reward
