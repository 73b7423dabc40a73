#include "analysis/idle_behind.h"

#include <algorithm>

#include "analysis/busy_unions.h"
#include "analysis/parallel.h"

namespace musetrace::analysis {
namespace {

constexpr std::size_t kLeastOfAPart = 256;
constexpr std::int64_t kNotBusy = -1;

// The busy spans of one instance after another.
class Busy {
  public:
    Busy(const std::int64_t* row_of_job, std::size_t rows, IdleBehind& found)
        : row_of_job_(row_of_job), row_end_(rows, kNotBusy), found_(found) {}

    void instance(std::int64_t number, const InstanceSpan* spans, std::size_t count, std::int64_t wall) {
        take(spans, count);
        add(number, kWholeLaunch, 0, wall);
        for (std::size_t row = 0; row < row_end_.size(); ++row) {
            if (row_end_[row] != kNotBusy) add(number, std::int64_t(row), row_end_[row], wall);
        }
    }

  private:
    void take(const InstanceSpan* spans, std::size_t count) {
        std::fill(row_end_.begin(), row_end_.end(), kNotBusy);
        begins_.clear();
        reached_.clear();
        covered_.assign(1, 0);
        pieces_.assign(1, 0);
        Union busy;
        for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t row = row_of_job_[spans[i].job];
            if (row < 0) continue;
            row_end_[std::size_t(row)] = std::max(row_end_[std::size_t(row)], spans[i].end);
            begins_.push_back(spans[i].begin);
            covered_.push_back(covered_.back() + busy.add(spans[i].begin, spans[i].end));
            pieces_.push_back(pieces_.back() + busy.opened());
            reached_.push_back(busy.covered_to());
        }
    }

    void add(std::int64_t number, std::int64_t row, std::int64_t from, std::int64_t until) {
        const std::size_t first = begun_before(from), past = begun_before(until);
        const std::int64_t busy = covered_until(until, past) - covered_until(from, first);
        found_.instance.push_back(number);
        found_.row.push_back(row);
        found_.behind_ns.push_back(until - from);
        found_.idle_ns.push_back(until - from - busy);
        found_.differences.push_back(pieces_[past] - pieces_[first] + 1);
    }

    std::size_t begun_before(std::int64_t time) const {
        return std::size_t(std::lower_bound(begins_.begin(), begins_.end(), time) - begins_.begin());
    }

    std::int64_t covered_until(std::int64_t time, std::size_t begun) const {
        const std::int64_t over = begun ? reached_[begun - 1] - time : 0;
        return covered_[begun] - std::max<std::int64_t>(over, 0);
    }

    const std::int64_t* row_of_job_;
    std::vector<std::int64_t> row_end_;
    IdleBehind& found_;
    std::vector<std::int64_t> begins_;
    std::vector<std::int64_t> reached_;  // the latest end up to each
    std::vector<std::int64_t> covered_;  // what those before each cover
    std::vector<std::int64_t> pieces_;
};

}  // namespace

std::vector<IdleBehind> idle_behind(const InstanceSpans& spans, const LaunchColumns& launches,
                                    const std::int64_t* instances, std::size_t count, const std::int64_t* row_of_job,
                                    std::size_t rows) {
    std::vector<IdleBehind> found(part_count(count, kLeastOfAPart));
    for_parts(count, found.size(), [&](std::size_t part, std::size_t first, std::size_t past) {
        Busy busy(row_of_job, rows, found[part]);
        for (std::size_t i = first; i < past; ++i) {
            const std::size_t one = std::size_t(instances[i]), launch = one % launches.size;
            const std::size_t from = spans.first[one];
            busy.instance(instances[i], spans.spans.data() + from, spans.first[one + 1] - from,
                          launches.end[launch] - launches.begin[launch]);
        }
    });
    return found;
}

}  // namespace musetrace::analysis
