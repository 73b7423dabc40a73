#include "megakernel/draft/entry.cuh"

namespace musetrace::megakernel::draft {

template DraftKernel draft_kernel<LayerBuild::kOff>();

}  // namespace musetrace::megakernel::draft
