"""From what was asked for to a model's ordinary chain on a device, or one line that says why not."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from musetrace.errors import UsageError
from musetrace.job_table import JobTable
from musetrace.muse import cuda_device
from musetrace.muse.batch.cuda_chain import CudaChain
from musetrace.muse.batch.ordinary_chain import OrdinaryChain, check_sequences
from musetrace.muse.batch.reference_chain import ReferenceChain
from musetrace.muse.checkpoint.whole import read_model
from musetrace.muse.config import MuseConfig
from musetrace.muse.cpu_device import clock_ns, measure_tick_ns
from musetrace.muse.cuda_memory import memory_need
from musetrace.muse.cuda_model import UploadedShares
from musetrace.muse.cuda_requirements import require_gpu, require_memory
from musetrace.muse.cuda_tables import TARGET
from musetrace.muse.opening import (
    DEFAULT_TP,
    EngineOptions,
    check_capacity,
    chosen_device,
    default_capacity,
    require_cpu_size,
    shares_of,
    weights_fact,
)
from musetrace.muse.threads import one_torch_thread
from musetrace.muse.weights import ModelWeights, synthesize
from musetrace.record.cpu_kernel_device import aligned_zeros, cpu_name
from musetrace.record.cuda_facts import cuda_facts
from musetrace.record.process_place import process_place
from musetrace.record.source import StampSource


@dataclass(frozen=True)
class OpenedChain:
    """A chain that is ready to run, and what a run says of its device, model and build."""

    chain: OrdinaryChain
    device: dict[str, Any]
    model: dict[str, Any]
    build: dict[str, Any]
    job_table: JobTable

    @property
    def note(self) -> str:
        """What a run says of it."""
        return (
            f"a batch of {self.chain.sequences} sequences runs on the {self.build['program']}, not on the "
            "megakernel: nothing is stamped"
        )

    def source(self) -> StampSource:
        """What a recorder must know. Nothing stamps: a run has the host's times of the steps."""
        return StampSource(
            job_table=self.job_table,
            ranks=1,
            blocks=1,
            slot_bytes=0,
            device=self.device,
            model=self.model,
            build=self.build,
            clock_name="CLOCK_MONOTONIC",
            tick_ns=measure_tick_ns(),
            read_clock=clock_ns,
            allocate=aligned_zeros,
            buffers=1,
        )


def open_chain(config: MuseConfig, options: EngineOptions, sequences: int) -> OpenedChain:
    """Make the weights of a whole model, and the chain that has them.

    Of the options, ``device``, ``tp`` (on the CPU: over how many ranks sums are split), ``seed``,
    ``capacity`` and ``checkpoint`` count. On a GPU the chain is one rank, whatever the engine is.

    Raises:
        UsageError: the model cannot be run so.
        DeviceError: the device is not there, or too small.
    """
    check_sequences(sequences)
    if config.slice_tp is not None:
        raise UsageError(
            f"model {config.name} is a slice, which decodes no prompt: a batch needs a whole model"
        )
    if (place := process_place(os.environ)) is not None:
        raise UsageError(
            f"a batch runs in one process, and there are {place.processes}; start it without torchrun"
        )
    check_capacity(config, options.capacity)
    on_gpu = chosen_device(config, options.device) == "cuda"
    return (_on_gpu if on_gpu else _on_cpu)(config, options, sequences)


def _on_cpu(config: MuseConfig, options: EngineOptions, sequences: int) -> OpenedChain:
    require_cpu_size(config)
    tp = DEFAULT_TP if options.tp is None else options.tp
    config.validate(tp)
    capacity = options.capacity or default_capacity(config, context=None)
    chain = ReferenceChain(_weights(config, options), sequences=sequences, capacity=capacity, tp=tp)
    device = {"kind": "cpu", "name": cpu_name()}
    build = {"tp": tp, "batch": sequences, "program": "torch reference, one sequence after the other"}
    return OpenedChain(chain, device, _model_facts(config, options), build, JobTable.built_in())


def _weights(config: MuseConfig, options: EngineOptions) -> ModelWeights:
    if options.checkpoint is not None:
        return read_model(Path(options.checkpoint), config)
    with one_torch_thread():
        return synthesize(config, options.seed)


def _on_gpu(config: MuseConfig, options: EngineOptions, sequences: int) -> OpenedChain:
    config.validate(1)
    module = require_gpu()
    capacity = options.capacity or default_capacity(config, context=None)
    need = memory_need(config, 1, 1, config.num_hidden_layers, capacity)
    require_memory(replace(need, kv_bytes=sequences * need.kv_bytes, sequences=sequences), config.name)
    shares = shares_of(config, options)
    chain = CudaChain(
        module,
        config,
        UploadedShares(shares, 1, cuda_device.GPU),
        shares.host_head,
        sequences=sequences,
        blocks=torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count,
        capacity=capacity,
        gpu=cuda_device.GPU,
    )
    build = {"tp": 1, "batch": sequences, "program": "chain of ordinary kernels, one graph a step"}
    return OpenedChain(chain, cuda_facts(), _model_facts(config, options), build, JobTable.built_in(TARGET))


def _model_facts(config: MuseConfig, options: EngineOptions) -> dict[str, Any]:
    return config.to_json() | {"seed": options.seed, **weights_fact(options)}
