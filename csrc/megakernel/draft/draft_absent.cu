// The draft kernel without stamps, as layer_absent.cu.
#define MUSETRACE_NO_STAMPS
#include "megakernel/draft/entry.cuh"

namespace musetrace::megakernel::draft {

template DraftKernel draft_kernel<LayerBuild::kAbsent>();

}  // namespace musetrace::megakernel::draft
