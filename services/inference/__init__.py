"""Inference: one sidecar an engine, and the programs that start the engine and its KV pool.

Owns: which weights its engine serves, and the engine's gate.
In:  forgerl.trainer.policy.v1 (policies to load), forgerl.gateway.run.v1 (which run is active).
Out: forgerl.inference.worker.v1, forgerl.inference.kv.v1 (lossy signals with sequence numbers).
gRPC: InferenceService (Drain, ListCachedBlocks).
Programs: services.inference.engine (vLLM), services.inference.kv_pool (LMCache), services.inference (sidecar).
Inside the engine's processes: gate.py (HTTP door), policy_worker.py (loads weights), in_process.py (executor).
Reading order: settings, bootstrap, ports, application, domain/, entrypoints/, adapters/.
"""
