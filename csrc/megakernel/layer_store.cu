#include "megakernel/layer_entry.cuh"

namespace musetrace::megakernel {

template LayerKernel layer_kernel<LayerBuild::kStore>();

}  // namespace musetrace::megakernel
