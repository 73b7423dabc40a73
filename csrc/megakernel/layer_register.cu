#include "megakernel/layer_entry.cuh"

namespace musetrace::megakernel {

template LayerKernel layer_kernel<StampMode::kRegister, false>();

}  // namespace musetrace::megakernel
