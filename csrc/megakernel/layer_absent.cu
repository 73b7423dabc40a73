// The layer without stamps: what the off build is compared with. Device code of a file is compiled by itself, so the
// macro changes this build alone.
#define MUSETRACE_NO_STAMPS
#include "megakernel/layer_entry.cuh"

namespace musetrace::megakernel {

template LayerKernel layer_kernel<LayerBuild::kAbsent>();

}  // namespace musetrace::megakernel
