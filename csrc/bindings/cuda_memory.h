// Device memory of one call.
#pragma once

#include <cuda_runtime_api.h>
#include <pybind11/numpy.h>

#include "megakernel/host_writes.h"

namespace musetrace::bindings {

using megakernel::check;
using megakernel::fill_bytes;
using megakernel::write_bytes;

class DeviceMemory {
  public:
    explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
        check(cudaMalloc(&data_, bytes), "allocating device memory");
        fill_bytes(data_, 0, bytes, "clearing device memory");
    }
    // A copy of host memory.
    DeviceMemory(const void* data, std::size_t bytes) : bytes_(bytes) {
        check(cudaMalloc(&data_, bytes), "allocating device memory");
        write_bytes(data_, data, bytes, "copying to the device");
    }
    ~DeviceMemory() { cudaFree(data_); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    template <class T>
    pybind11::array_t<T> to_host() const {
        pybind11::array_t<T> out(static_cast<pybind11::ssize_t>(bytes_ / sizeof(T)));
        check(cudaMemcpy(out.mutable_data(), data_, bytes_, cudaMemcpyDeviceToHost), "copying from the device");
        return out;
    }

  private:
    std::size_t bytes_;
    void* data_ = nullptr;
};

}  // namespace musetrace::bindings
