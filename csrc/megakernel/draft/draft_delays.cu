#include "megakernel/draft/entry.cuh"

namespace musetrace::megakernel::draft {

template DraftKernel draft_kernel<LayerBuild::kDelays>();

}  // namespace musetrace::megakernel::draft
