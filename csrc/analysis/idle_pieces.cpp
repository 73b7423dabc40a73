#include "analysis/idle_pieces.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "analysis/parallel.h"

namespace musetrace::analysis {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kLeastOfAPart = 256;

struct Wait {
    std::int64_t end;
    std::int64_t next_busy;  // when its warp begins its next busy job, kNever where it does not
    std::int64_t job;

    auto urgency() const { return std::tie(next_busy, end, job); }
};

// Goes through the times of one instance after another; what it keeps is memory only.
class Sweep {
  public:
    Sweep(const IdleClass* classes, IdlePieces& found) : classes_(classes), found_(found) {}

    void instance(std::int64_t number, const InstanceSpan* spans, std::size_t count, std::int64_t wall) {
        begin(spans, count, wall);
        std::size_t at = 0;
        for (std::size_t point = 0; point + 1 < times_.size(); ++point) {
            const std::int64_t now = times_[point];
            const bool broken = take_begins(spans, count, at, now);
            if (busy_until_ > now) {
                open_ = false;
            } else {
                piece(number, now, times_[point + 1] - now, broken);
            }
        }
    }

  private:
    void begin(const InstanceSpan* spans, std::size_t count, std::int64_t wall) {
        times_.assign({0, wall});
        waits_.clear();
        open_ = false;
        busy_until_ = loading_until_ = -1;
        first_ = count ? spans[0].begin : kNever;
        last_ = count ? 0 : kNever;
        for (std::size_t i = 0; i < count; ++i) {
            times_.push_back(spans[i].begin);
            times_.push_back(spans[i].end);
            last_ = std::max(last_, spans[i].end);
        }
        std::sort(times_.begin(), times_.end());
        times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
    }

    // What begins now; whether a busy job does.
    bool take_begins(const InstanceSpan* spans, std::size_t count, std::size_t& at, std::int64_t now) {
        bool busy = false;
        for (; at < count && spans[at].begin == now; ++at) {
            const InstanceSpan& span = spans[at];
            switch (classes_[span.job]) {
                case IdleClass::kBusy:
                    busy = true;
                    busy_until_ = std::max(busy_until_, span.end);
                    break;
                case IdleClass::kLoading:
                    loading_until_ = std::max(loading_until_, span.end);
                    break;
                case IdleClass::kWaiting:
                    if (span.end > now) waits_.push_back({span.end, next_busy(spans, count, at), span.job});
                    break;
                case IdleClass::kSecondHandWait:
                    if (span.end > now) waits_.push_back({span.end, kNever, span.job});
                    break;
                case IdleClass::kOther:
                    break;
            }
        }
        return busy;
    }

    std::int64_t next_busy(const InstanceSpan* spans, std::size_t count, std::size_t wait) const {
        // One that begins when the wait ends may stand before the wait, where that has no length; those have no piece.
        for (std::size_t i = wait + 1; i < count; ++i) {
            const bool follows = spans[i].warp == spans[wait].warp && spans[i].begin >= spans[wait].end;
            if (follows && classes_[spans[i].job] == IdleClass::kBusy) return spans[i].begin;
        }
        return kNever;
    }

    void piece(std::int64_t number, std::int64_t now, std::int64_t length, bool broken) {
        const auto over = [now](const Wait& wait) { return wait.end <= now; };
        waits_.erase(std::remove_if(waits_.begin(), waits_.end(), over), waits_.end());
        std::int64_t cause = loading_until_ > now ? kLoadOnly : kUnlabelled;
        bool contested = false;
        if (!waits_.empty()) {
            const auto sooner = [](const Wait& a, const Wait& b) { return a.urgency() < b.urgency(); };
            cause = std::min_element(waits_.begin(), waits_.end(), sooner)->job;
            contested = std::any_of(waits_.begin(), waits_.end(), [&](const Wait& w) { return w.job != cause; });
        } else if (now >= last_) {
            cause = kTail;
        } else if (first_ != kNever && now < first_) {
            cause = kHead;
        }
        if (!open_ || broken || found_.cause.back() != cause) {
            found_.instance.push_back(number);
            found_.cause.push_back(cause);
            found_.length_ns.push_back(0);
            found_.contested_ns.push_back(0);
            open_ = true;
        }
        found_.length_ns.back() += length;
        if (contested) found_.contested_ns.back() += length;
    }

    const IdleClass* classes_;
    IdlePieces& found_;
    std::vector<std::int64_t> times_;
    std::vector<Wait> waits_;
    std::int64_t busy_until_ = -1;
    std::int64_t loading_until_ = -1;
    std::int64_t first_ = kNever;  // begin of the first span, kNever where there is none
    std::int64_t last_ = kNever;   // end of the last one
    bool open_ = false;            // whether the last piece ends now
};

}  // namespace

std::vector<IdlePieces> idle_pieces(const InstanceSpans& spans, const LaunchColumns& launches,
                                    const std::int64_t* instances, std::size_t count, const IdleClass* classes) {
    std::vector<IdlePieces> found(part_count(count, kLeastOfAPart));
    for_parts(count, found.size(), [&](std::size_t part, std::size_t first, std::size_t past) {
        Sweep sweep(classes, found[part]);
        for (std::size_t i = first; i < past; ++i) {
            const std::size_t one = std::size_t(instances[i]), launch = one % launches.size;
            const std::size_t from = spans.first[one];
            sweep.instance(instances[i], spans.spans.data() + from, spans.first[one + 1] - from,
                           launches.end[launch] - launches.begin[launch]);
        }
    });
    return found;
}

}  // namespace musetrace::analysis
