// Device memory, cleared, with an owner.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "megakernel/host_writes.h"

namespace musetrace::megakernel {

class Buffer {
  public:
    explicit Buffer(std::size_t bytes) : bytes_(bytes) {
        const std::size_t least = bytes < 16 ? 16 : bytes;
        check(cudaMalloc(&data_, least), "allocating device memory");
        fill_bytes(data_, 0, least, "clearing device memory");
    }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }

    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    std::size_t bytes() const { return bytes_; }
    // Gives the memory up without freeing it.
    void leave() { data_ = nullptr; }

  private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

}  // namespace musetrace::megakernel
