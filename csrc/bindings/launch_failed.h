// A wait that ran out of time, as Python's LaunchFailed: its argument is the wait report.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

#include "musetrace/abi/wait_report.h"

namespace musetrace::bindings {

inline pybind11::dict report_dict(const abi::WaitReport& report) {
    pybind11::dict dict;
    dict["site"] = report.site;
    dict["rank"] = report.rank;
    dict["block"] = report.block;
    dict["warp"] = report.warp;
    dict["want"] = report.want;
    dict["got"] = report.got;
    dict["waited_ns"] = report.waited_ns;
    return dict;
}

// Once for a module. `Error` has the report.
template <class Error>
void bind_launch_failed(pybind11::module_& module) {
    static pybind11::exception<Error> failed(module, "LaunchFailed", PyExc_RuntimeError);
    pybind11::register_local_exception_translator([](std::exception_ptr pointer) {
        try {
            if (pointer) std::rethrow_exception(pointer);
        } catch (const Error& error) {
            PyErr_SetObject(failed.ptr(), report_dict(error.report).ptr());
        }
    });
}

}  // namespace musetrace::bindings
