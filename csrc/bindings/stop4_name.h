// The way of stop 4 by its name.
#pragma once

#include <stdexcept>
#include <string>

#include "megakernel/exchange.h"

namespace musetrace::bindings {

inline megakernel::Stop4 stop4_of(const std::string& name) {
    if (name != "gather" && name != "sumsq") throw std::invalid_argument("stop4 is gather or sumsq, not " + name);
    return name == "gather" ? megakernel::Stop4::kGather : megakernel::Stop4::kSumsq;
}

}  // namespace musetrace::bindings
