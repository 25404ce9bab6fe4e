"""Runs agents: one durable Temporal workflow an episode.

Owns: workflows, the white-box tool loop, black-box harnesses, sandboxes, and the journal of what tools answered.
Topics in: forgerl.scheduler.admission.v1 (start, cancel), forgerl.gateway.run.v1 and
forgerl.scheduler.retention.v1 (long texts of removed runs and of pruned episodes go).
Topics out: forgerl.rollout.episode.v1 (started, finished, failed).
Private streams: rollout.turns/<episode_id>, rollout.run/<run_id>.
Calls: the gateway by gRPC (what to run, which key) and by HTTP (the model).

Read: settings -> bootstrap -> ports -> application, turns -> domain -> entrypoints -> adapters. `agents/` and
`registry.py` say which agents there are; `inside/` is the little that runs within a sandbox.
"""
