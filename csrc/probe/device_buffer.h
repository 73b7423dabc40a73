// Device memory of one measurement.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "megakernel/host_writes.h"

namespace musetrace::probe {

using megakernel::check;
using megakernel::fill_bytes;
using megakernel::require;
using megakernel::write_bytes;

// Begins as zeros, for launches in whatever stream.
template <class T>
class DeviceBuffer {
  public:
    explicit DeviceBuffer(std::size_t count) : count_(count) {
        check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "allocating device memory");
        try {
            fill_bytes(data_, 0, count * sizeof(T), "clearing device memory");
        } catch (...) {
            cudaFree(data_);
            throw;
        }
    }
    ~DeviceBuffer() { cudaFree(data_); }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    T* get() const { return data_; }
    std::size_t count() const { return count_; }
    // Waits for the kernels before.
    std::vector<T> to_host() const {
        std::vector<T> out(count_);
        check(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copying from the device");
        return out;
    }

  private:
    std::size_t count_;
    T* data_ = nullptr;
};

// Structures of uint64 as these, one after the other.
template <class T>
std::vector<std::uint64_t> words_of(const DeviceBuffer<T>& buffer) {
    static_assert(sizeof(T) % sizeof(std::uint64_t) == 0);
    const std::vector<T> host = buffer.to_host();
    std::vector<std::uint64_t> words(host.size() * sizeof(T) / sizeof(std::uint64_t));
    std::memcpy(words.data(), host.data(), host.size() * sizeof(T));
    return words;
}

}  // namespace musetrace::probe
