// How a launch follows the one in front of it when it may start before that has ended (programmatic launch).
#pragma once

namespace musetrace::megakernel {

// Until the launch in front has ended and its writes are visible. Every thread that reads them is behind this.
__device__ __forceinline__ void wait_for_launch_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_launch_start() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace musetrace::megakernel
