"""The compiled module; what its parts hold is defined in csrc and checked by tests/unit/test_abi.py."""

from types import ModuleType

abi: ModuleType
analysis: ModuleType
cpu: ModuleType
megakernel: ModuleType
probe: ModuleType
