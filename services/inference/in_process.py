"""vLLM's executor for one worker inside the engine core: two processes an engine instead of three.

The CPU platform replaces the built-in one ("uni") by worker processes; it leaves a class of another name alone.
"""

from vllm.v1.executor.uniproc_executor import UniProcExecutor


class InProcessExecutor(UniProcExecutor):
    """The built-in executor, under a name of its own."""
