"""Trainer: batches to gradients, checkpoints and policies, exactly once.

Owns: group terms, advantages, losses, the optimiser, checkpoints (DATA_DIR/checkpoints), policy folders (blob store
under policies/<run>/), curves (DATA_DIR/runs/<run>).
In:  forgerl.gateway.run.v1 (RunCreated, RunEnded, RunRemoved), forgerl.scheduler.batch.v1 (BatchAssembled)
Out: forgerl.trainer.policy.v1 (StepCompleted, PolicyPublished, StepFailed)
gRPC: PolicyService. Private streams: trainer.run/<run>.
Read: settings, bootstrap, ports, application, training, domain/, entrypoints/, adapters/. Beside them:
tree/ merges shared prefixes (pure but for torch), ranks/ lets several processes train one model.
"""
