"""Router: which engine serves a call, and where its KV comes from.

Owns: nothing that lasts but the newest policy of each run; everything else is projections and leases.
In:  forgerl.trainer.policy.v1 (newest policy), forgerl.inference.worker.v1 and forgerl.inference.kv.v1 (signals).
Out: no topics.
gRPC: RouterService (Route, Complete, Explain, ListWorkers).
Reading order: settings, bootstrap, ports, application, domain/, entrypoints/.
"""
