"""Starts vLLM's API server in this process, in a third of the usual time; refuses nothing, decides nothing.

vLLM on the CPU imports everything four times (API server, model inspection, engine core, worker: 16 s each on a
busy core). Here the engine core is forked from the API server, the worker lives in the engine core, and the model is
inspected in place. The `vllm` command is not used: it looks for a distribution of that name, and the CPU build's
differs.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def prepare() -> None:
    """Import vLLM, the longest part of a start, and change how it starts its parts."""
    _fork_engine_core()
    _inspect_model_in_place()
    _look_only_into_dicts()


def serve(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    import uvloop
    from vllm.entrypoints.launchers.api_server.entry import run_server
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    sys.argv = ["vllm", *arguments]
    parsed: Any = make_arg_parser(FlexibleArgumentParser()).parse_args()
    validate_parsed_serve_args(parsed)
    uvloop.run(run_server(parsed))


def _fork_engine_core() -> None:
    from vllm.platforms import current_platform

    platform: Any = type(current_platform)
    usual = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        usual(cls, config)
        # The CPU platform asks for spawn for the sake of OpenMP's pools; with nobind it makes none before the fork.
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    platform.check_and_update_config = classmethod(check_and_update_config)


def _inspect_model_in_place() -> None:
    from vllm.model_executor.models import registry

    def run_here(function: Callable[[], Any]) -> Any:
        return function()

    registry._run_in_subprocess = run_here


def _look_only_into_dicts() -> None:
    # On start vLLM reads vars(x).get of every object of every module; llvmlite's bindings, which LMCache brings
    # into the same process, have a __dict__ that is no dict.
    import vllm.triton_utils.dispatcher

    dispatcher: Any = vllm.triton_utils.dispatcher

    def instance_dict(value: Any) -> Mapping[str, Any]:
        found = getattr(value, "__dict__", None)
        return found if isinstance(found, Mapping) else {}

    dispatcher.vars = instance_dict
