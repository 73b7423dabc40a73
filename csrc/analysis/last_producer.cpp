#include "analysis/last_producer.h"

#include <algorithm>
#include <tuple>

#include "analysis/parallel.h"

namespace musetrace::analysis {
namespace {

constexpr std::size_t kLaunchIds = 1 << 16;
constexpr std::size_t kLeastOfAPart = 1 << 13;
constexpr std::size_t kMostBuckets = 1 << 22;
constexpr std::size_t kNoBucket = std::numeric_limits<std::size_t>::max();

struct Producer {
    std::int64_t group;  // within the bucket: iteration and block, or 0
    std::int64_t end;
    std::int64_t who;
    std::int64_t begin;
    std::int64_t span;
    std::int64_t rival;  // latest end of another block of the group before it, kNoTime where none is

    auto order() const { return std::tie(group, end, who, span); }
};

// Producers by launch, and by rank and block as the scope asks; those of a bucket in order.
class Buckets {
  public:
    Buckets(const JobSpans& made, const MatchRule& rule) : rule_(rule), place_(kLaunchIds, -1) {
        for (std::size_t i = 0; i < made.size; ++i) {
            std::int32_t& place = place_[std::size_t(made.launch[i])];
            if (place < 0) place = launches_++;
        }
        std::size_t buckets = std::size_t(launches_);
        if (rule.scope != ProducerScope::kRanks) buckets *= rule.ranks;
        block_in_bucket_ = rule.scope == ProducerScope::kBlock && buckets * rule.blocks <= kMostBuckets;
        if (block_in_bucket_) buckets *= rule.blocks;
        first_.assign(buckets + 1, 0);
        fill(made);
        for_parts(buckets, part_count(producers_.size(), kLeastOfAPart),
                  [&](std::size_t, std::size_t first, std::size_t past) {
                      for (std::size_t bucket = first; bucket < past; ++bucket) sort(bucket);
                  });
    }

    // kNoBucket for a launch without producers.
    std::size_t bucket(const JobSpans& spans, std::size_t i) const {
        const std::int32_t place = place_[std::size_t(spans.launch[i])];
        if (place < 0) return kNoBucket;
        std::size_t found = std::size_t(place);
        if (rule_.scope != ProducerScope::kRanks) found = found * rule_.ranks + std::size_t(spans.rank[i]);
        return block_in_bucket_ ? found * rule_.blocks + std::size_t(spans.block[i]) : found;
    }

    std::int64_t group(const JobSpans& spans, std::size_t i) const {
        const bool by_block = rule_.scope == ProducerScope::kBlock && !block_in_bucket_;
        return (by_block ? std::int64_t(spans.block[i]) << 32 : 0) + (rule_.by_iteration ? spans.iteration[i] : 0);
    }

    const Producer* begin(std::size_t bucket) const { return producers_.data() + first_[bucket]; }
    const Producer* end(std::size_t bucket) const { return producers_.data() + first_[bucket + 1]; }

  private:
    void fill(const JobSpans& made) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < made.size; ++i) {
            if (!rule_.of_clock[made.rank[i]]) continue;
            ++first_[bucket(made, i) + 1];
            ++kept;
        }
        for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
        producers_.resize(kept);
        std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
        for (std::size_t i = 0; i < made.size; ++i) {
            if (!rule_.of_clock[made.rank[i]]) continue;
            const std::int64_t who = made.rank[i] * std::int64_t(rule_.blocks) + made.block[i];
            producers_[next[bucket(made, i)]++] = {group(made, i), made.end[i],     who,
                                                   made.begin[i],  std::int64_t(i), kNoTime};
        }
    }

    void sort(std::size_t bucket) {
        const auto first = producers_.begin() + std::ptrdiff_t(first_[bucket]);
        const auto past = producers_.begin() + std::ptrdiff_t(first_[bucket + 1]);
        std::sort(first, past, [](const Producer& a, const Producer& b) { return a.order() < b.order(); });
        for (auto one = first; one != past; ++one) {
            if (one == first || one->group != one[-1].group) continue;
            one->rival = one[-1].who == one->who ? one[-1].rival : one[-1].end;
        }
    }

    MatchRule rule_;
    std::vector<std::int32_t> place_;
    std::int32_t launches_ = 0;
    bool block_in_bucket_ = false;
    std::vector<std::size_t> first_;
    std::vector<Producer> producers_;
};

void match(const JobSpans& waits, const Buckets& buckets, const MatchRule& rule, std::size_t i, ProducerMatch& found) {
    const std::size_t bucket = buckets.bucket(waits, i);
    if (bucket == kNoBucket) return;
    const std::int64_t group = buckets.group(waits, i);
    const auto below = [](const Producer& one, std::int64_t value) { return one.group < value; };
    const Producer* first = std::lower_bound(buckets.begin(bucket), buckets.end(bucket), group, below);
    if (first == buckets.end(bucket) || first->group != group) return;
    const std::size_t rank = std::size_t(waits.rank[i]);
    if (!rule.aligned[rank]) {
        found.tied[i] = 1;
        return;
    }
    const std::int64_t until = waits.end[i] + rule.error_ns[rank];
    const auto later = [group](std::int64_t time, const Producer& one) {
        return one.group > group || (one.group == group && one.end > time);
    };
    const Producer* past = std::upper_bound(first, buckets.end(bucket), until, later);
    if (past == first) {
        std::int64_t latest = kNoTime;
        for (const Producer* one = first; one != buckets.end(bucket) && one->group == group; ++one) {
            if (one->begin > until || std::tie(one->begin, one->span) < std::tie(latest, found.span[i])) continue;
            found.under_way[i] = 1;
            latest = one->begin;
            found.span[i] = one->span;
        }
        return;
    }
    const Producer& last = past[-1];
    found.end[i] = last.end;
    found.who[i] = last.who;
    found.span[i] = last.span;
    found.error_ns[i] = rule.error_ns[rank];
    found.tied[i] = last.rival != kNoTime && last.end - last.rival < rule.apart_ns;
}

}  // namespace

void add_match_sums(const JobSpans& waits, const MatchColumns& match, std::int64_t* sums) {
    for (std::size_t i = 0; i < waits.size; ++i) {
        std::int64_t* of = sums + std::size_t(waits.rank[i]) * kMatchSums;
        const std::int64_t length = waits.end[i] - waits.begin[i];
        if (match.end[i] != kNoTime) {
            const std::int64_t before = std::clamp<std::int64_t>(match.end[i] - waits.begin[i], 0, length);
            of[kMatched] += 1;
            of[kTied] += match.tied[i];
            of[kBeforeNs] += before;
            of[kAfterNs] += length - before;
            of[kErrorNs] += match.error_ns[i];
        } else if (match.under_way[i]) {
            of[kUnderWay] += 1;
            of[kUnderWayNs] += length;
        }
    }
}

ProducerMatch last_producers(const JobSpans& waits, const JobSpans& made, const MatchRule& rule) {
    ProducerMatch found(waits.size);
    const Buckets buckets(made, rule);
    for_parts(waits.size, part_count(waits.size, kLeastOfAPart), [&](std::size_t, std::size_t first, std::size_t past) {
        for (std::size_t i = first; i < past; ++i) match(waits, buckets, rule, i, found);
    });
    return found;
}

}  // namespace musetrace::analysis
