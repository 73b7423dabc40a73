// The exchange of clocks between GPUs.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <vector>

#include "probe/peer_clock.cuh"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using probe::PeerClock;

py::array_t<std::uint64_t> array_of(const std::vector<PeerClock::Round>& rounds) {
    py::array_t<std::uint64_t> out({static_cast<py::ssize_t>(rounds.size()), py::ssize_t{3}});
    std::memcpy(out.mutable_data(), rounds.data(), rounds.size() * sizeof(PeerClock::Round));
    return out;
}

std::uint32_t answer(PeerClock& clock, const std::string& handle, std::uint64_t budget_ns, std::int64_t ahead_ns) {
    const py::gil_scoped_release unlocked;
    return clock.answer(handle, budget_ns, ahead_ns);
}

py::array_t<std::uint64_t> ask(PeerClock& clock, const std::string& handle, std::uint64_t budget_ns,
                               std::int64_t ahead_ns) {
    std::vector<PeerClock::Round> rounds;
    {
        const py::gil_scoped_release unlocked;
        rounds = clock.ask(handle, budget_ns, ahead_ns);
    }
    return array_of(rounds);
}

py::array_t<std::uint64_t> ask_itself(PeerClock& clock, std::uint64_t budget_ns, std::int64_t ahead_ns) {
    std::vector<PeerClock::Round> rounds;
    {
        const py::gil_scoped_release unlocked;
        rounds = clock.ask_itself(budget_ns, ahead_ns);
    }
    return array_of(rounds);
}

}  // namespace

void bind_peer_clock(py::module_& module) {
    // Without a destructor for Python: other processes may have the memory mapped.
    py::class_<PeerClock, std::unique_ptr<PeerClock, py::nodelete>>(
        module, "PeerClock", "The current GPU's end of an exchange of clocks; it lives as long as the process")
        .def(py::init<>())
        .def_property_readonly(
            "handle", [](const PeerClock& clock) { return py::bytes(clock.handle()); },
            "For another process of this host, 64 bytes")
        .def("reach", &PeerClock::reach, py::arg("handle"), "Maps the memory of another process's end")
        .def("clear", &PeerClock::clear, py::arg("patience_ns") = probe::kMostPatienceNs,
             "Empties the flags, before the other end asks; waits so long for other work of the GPU")
        .def("answer", &answer, py::arg("handle"), py::arg("budget_ns"), py::arg("ahead_ns") = 0,
             "Answers an end that asks; returns the number of rounds. ahead_ns: added to the own clock")
        .def("ask", &ask, py::arg("handle"), py::arg("budget_ns"), py::arg("ahead_ns") = 0,
             "uint64[rounds, 3], ns: asked, answered by the other's clock, answer seen")
        .def("ask_itself", &ask_itself, py::arg("budget_ns"), py::arg("ahead_ns") = 0,
             "As ask, of a second block on this GPU whose clock is so far ahead");
}

}  // namespace musetrace::bindings
