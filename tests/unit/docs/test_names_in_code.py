"""Names that the pages list and no schema does: private streams, metrics of a step."""

import re

import pytest
from doc_pages import ROOT
from forgerl.events.v1 import gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2

from services.kernel.catalogue import Catalogue
from services.trainer.domain.guard import BatchStats
from services.trainer.domain.histograms import Histogram
from services.trainer.domain.metrics import all_metrics, yield_metrics
from services.trainer.domain.preparation import PreparedBatch
from services.trainer.domain.rows import BatchRows
from services.trainer.domain.training_yield import measure

SERVICES = "gateway|scheduler|rollout|router|inference|reward|trainer"
STREAM = re.compile(rf"\"((?:{SERVICES})\.[a-z_]+)/")
EVENTS = (gateway_pb2, inference_pb2, reward_pb2, rollout_pb2, scheduler_pb2, trainer_pb2)


def test_every_private_stream_is_listed_and_no_other() -> None:
    sources = [path.read_text() for path in (ROOT / "services").rglob("*.py")]
    used = {name for text in sources for name in STREAM.findall(text)}
    published = {topic.noun for topic in Catalogue.from_modules(EVENTS).topics()}
    page = (ROOT / "docs" / "events.md").read_text()
    table = page.partition("| private streams |")[2].partition("\n\n")[0]
    assert used & published, "the pattern finds no streams any more"
    assert set(re.findall(r"`([a-z]+\.[a-z_]+)/…`", table)) == used - published


def metric_names() -> set[str]:
    nothing = PreparedBatch((), BatchRows((), {}), {})
    histograms = {"ratio": Histogram.empty((1.0,)), "parameter_grad_norm": Histogram.empty((1.0,))}
    stats = BatchStats(*[0] * 12, histograms=histograms, draft={"mtp_kl": 0.0, "mtp_acceptance": 0.0})
    return {*all_metrics(stats, nothing, 0.0, 0), *yield_metrics(measure([], 2.0)), "mismatch_alarm", "step_s"}


@pytest.mark.parametrize("name", sorted(metric_names()))
def test_every_metric_of_a_step_is_explained(name: str) -> None:
    page = (ROOT / "docs" / "rewards-and-loss.md").read_text().partition("| metric | meaning |")[2]
    listed = set(re.findall(r"`([\w./<>]+)`", page)) | {f"parameter_grad_norm_p{n}" for n in ("50", "95", "99")}
    listed.add("parameter_grad_norm_p01")
    assert name in listed
