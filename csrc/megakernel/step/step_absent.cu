// The kernel without stamps, as layer_absent.cu.
#define MUSETRACE_NO_STAMPS
#include "megakernel/step/entry.cuh"

namespace musetrace::megakernel::step {

StepKernel absent_step_kernel() { return muse_step<LayerBuild::kAbsent>; }

}  // namespace musetrace::megakernel::step
