"""Scheduler: who may run, who is in which group, and which finished items make the next batch.

Owns the generation queue, admission, group membership, the mix, staleness, windowed FIFO and its rivals, the fleet's
shares, retention and the "why" ledger.

In:  forgerl.gateway.run.v1, forgerl.gateway.episode.v1, forgerl.rollout.episode.v1, forgerl.reward.score.v1,
     forgerl.trainer.policy.v1
Out: forgerl.scheduler.admission.v1 (episode_id): EpisodeAdmitted, EpisodeRevoked
     forgerl.scheduler.batch.v1 (run_id): BatchAssembled, SampleDropped
     forgerl.scheduler.retention.v1 (run_id): EpisodesPruned
Private: scheduler.queue/<run_id>: every input in the order taken, and the decisions that followed (QueueAdvanced).
gRPC: SchedulerService (capacity, window, ledger). Blobs: one BatchManifest a batch, written before its event.

Read domain/queue.py (how inputs become decisions), domain/decide.py (the rules), domain/apply.py (what they change),
then application.py (one commit a batch of events) and entrypoints/. entrypoints/replay.py is a program of its own: it
reads recorded queues with everything down (domain/hindsight.py, outcome.py, contrast.py).
"""
