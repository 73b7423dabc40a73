// Integer sums by key.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

#include "analysis/key_sums.h"
#include "bindings/analysis_arrays.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

py::tuple sum_by_key(const py::tuple& keys, const Ints& sums) {
    std::optional<py::ssize_t> size;
    const auto column_of = [&](const Ints& array) {
        if (array.ndim() == 0) return analysis::KeyColumn{nullptr, *array.data()};
        check_length(array, size.value_or(array.size()), "a key or sums");
        size = array.size();
        return analysis::KeyColumn{array.data(), 0};
    };
    std::vector<Ints> arrays;  // what the columns point into
    std::vector<analysis::KeyColumn> columns;
    for (const py::handle key : keys) columns.push_back(column_of(arrays.emplace_back(key.cast<Ints>())));
    const analysis::KeyColumn values = column_of(sums);
    analysis::KeySums found;
    {
        const py::gil_scoped_release free;
        found = analysis::sum_by_key(columns, values, std::size_t(size.value_or(1)));
    }
    py::tuple named(found.keys.size());
    for (std::size_t i = 0; i < found.keys.size(); ++i) named[i] = to_array(std::move(found.keys[i]));
    return py::make_tuple(named, to_array(std::move(found.sums)));
}

}  // namespace

void bind_analysis_sums(py::module_ module) {
    module.def("sum_by_key", &sum_by_key, py::arg("keys"), py::arg("sums"),
               "(keys, sums) of entries added up by key: `keys` a tuple of int64[n] or numbers, `sums` int64[n] or a "
               "number; the keys found are distinct and ascend, the first counts most, and no sum is 0");
}

}  // namespace musetrace::bindings
