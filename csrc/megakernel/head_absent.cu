// The head without stamps, as layer_absent.cu.
#define MUSETRACE_NO_STAMPS
#include "megakernel/head_entry.cuh"

namespace musetrace::megakernel {

HeadKernel absent_head_kernel() { return muse_head<LayerBuild::kAbsent>; }

}  // namespace musetrace::megakernel
