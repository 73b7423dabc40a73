#include "megakernel/layer_entry.cuh"

namespace musetrace::megakernel {

template LayerKernel layer_kernel<StampMode::kOff, true>();

}  // namespace musetrace::megakernel
