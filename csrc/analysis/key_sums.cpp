#include "analysis/key_sums.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace musetrace::analysis {
namespace {

using Packed = std::uint64_t;

// A table of all keys that there can be is quicker than sorting, up to so many of them.
constexpr Packed kTableFactor = 4, kLeastTable = 1024, kMostTable = Packed{1} << 24;
// A column whose numbers lie so far apart may get places for those alone that there are.
constexpr Packed kNarrow = 64, kMostNarrowed = 1 << 20, kSparse = 16;
constexpr Packed kMostPacked = Packed{1} << 62;
// Fewer are quicker to sort by comparing.
constexpr std::size_t kLeastRadix = 512;
constexpr unsigned kDigitBits = 11;

// A key column as places in [0, span): of the numbers from `low` on, or of `named` ones among them.
struct Places {
    KeyColumn column;
    std::int64_t low = 0;
    Packed span = 1;
    std::vector<std::uint32_t> rank{};
    std::vector<std::int64_t> named{};

    Places(KeyColumn of, std::size_t size) : column(of), low(of[0]) {
        if (of.values == nullptr) return;
        const auto [least, most] = std::minmax_element(of.values, of.values + size);
        low = *least;
        // The span of all numbers is 0: it is treated as too many.
        span = Packed(*most) - Packed(*least) + 1;
    }

    // Puts the places behind those of the columns before.
    void append_to(std::vector<Packed>& keys) const {
        if (column.values == nullptr) return;
        const std::int64_t* values = column.values;
        if (rank.empty()) {
            for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = keys[i] * span + (Packed(values[i]) - Packed(low));
        } else {
            for (std::size_t i = 0; i < keys.size(); ++i) {
                keys[i] = keys[i] * span + rank[Packed(values[i]) - Packed(low)];
            }
        }
    }

    std::int64_t number(Packed place) const { return rank.empty() ? std::int64_t(Packed(low) + place) : named[place]; }

    void narrow(std::size_t size) {
        if (span <= kNarrow || span > kMostNarrowed || span / kSparse > size) return;
        std::vector<std::uint32_t> found(span);
        for (std::size_t i = 0; i < size; ++i) found[Packed(column.values[i]) - Packed(low)] = 1;
        for (Packed place = 0; place < span; ++place) {
            if (found[place] == 0) continue;
            found[place] = std::uint32_t(named.size());
            named.push_back(std::int64_t(Packed(low) + place));
        }
        rank = std::move(found);
        span = named.size();
    }
};

// How many keys there can be; kMostPacked + 1 where they are more than that.
Packed possible_keys(const std::vector<Places>& places) {
    Packed possible = 1;
    for (const Places& one : places) {
        if (one.span == 0 || one.span > kMostPacked / possible) return kMostPacked + 1;
        possible *= one.span;
    }
    return possible;
}

// One number for each entry, which ascends as its key does.
std::vector<Packed> packed_keys(const std::vector<Places>& places, std::size_t size) {
    std::vector<Packed> keys(size);
    for (const Places& one : places) one.append_to(keys);
    return keys;
}

void append(KeySums& found, const std::vector<Places>& places, Packed key, std::int64_t sum) {
    if (sum == 0) return;
    for (std::size_t column = places.size(); column-- > 0;) {
        found.keys[column].push_back(places[column].number(key % places[column].span));
        key /= places[column].span;
    }
    found.sums.push_back(sum);
}

void sum_in_table(KeySums& found, const std::vector<Places>& places, KeyColumn sums, std::size_t size,
                  Packed possible) {
    const std::vector<Packed> keys = packed_keys(places, size);
    std::vector<Packed> table(possible);
    for (std::size_t i = 0; i < size; ++i) table[keys[i]] += Packed(sums[i]);
    for (Packed key = 0; key < possible; ++key) append(found, places, key, std::int64_t(table[key]));
}

struct Entry {
    Packed key;
    std::int64_t value;
    bool operator<(const Entry& other) const { return key < other.key; }
};
Packed key_of(Packed key) { return key; }
Packed key_of(const Entry& entry) { return entry.key; }

// By keys, which are below `possible`.
template <typename Item>
void sort_by_key(std::vector<Item>& items, Packed possible) {
    if (items.size() < kLeastRadix) {
        std::sort(items.begin(), items.end());
        return;
    }
    std::vector<Item> other(items.size());
    for (unsigned shift = 0; shift < 64 && (possible - 1) >> shift != 0; shift += kDigitBits) {
        constexpr Packed kDigits = Packed{1} << kDigitBits;
        std::array<std::size_t, kDigits> at{};
        const auto digit = [shift](const Item& item) { return (key_of(item) >> shift) % kDigits; };
        for (const Item& item : items) ++at[digit(item)];
        std::exclusive_scan(at.begin(), at.end(), at.begin(), std::size_t{0});
        for (const Item& item : items) other[at[digit(item)]++] = item;
        items.swap(other);
    }
}

// `value_of` tells what an item adds to the sum of its key.
template <typename Item, typename ValueOf>
void sum_items(KeySums& found, const std::vector<Places>& places, std::vector<Item> items, Packed possible,
               ValueOf value_of) {
    sort_by_key(items, possible);
    for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
        const Packed key = key_of(items[begin]);
        Packed sum = 0;
        for (; end < items.size() && key_of(items[end]) == key; ++end) sum += Packed(value_of(items[end]));
        append(found, places, key, std::int64_t(sum));
    }
}

void sum_sorted(KeySums& found, const std::vector<Places>& places, KeyColumn sums, std::size_t size, Packed possible) {
    std::vector<Packed> keys = packed_keys(places, size);
    if (sums.values == nullptr) {
        sum_items(found, places, std::move(keys), possible, [&](Packed) { return sums.every; });
        return;
    }
    std::vector<Entry> entries(size);
    for (std::size_t i = 0; i < size; ++i) entries[i] = {keys[i], sums[i]};
    std::vector<Packed>().swap(keys);  // sorting takes as much again
    sum_items(found, places, std::move(entries), possible, [](const Entry& entry) { return entry.value; });
}

// Of keys that do not fit into one number.
void sum_by_columns(KeySums& found, const std::vector<KeyColumn>& keys, KeyColumn sums, std::size_t size) {
    std::vector<std::size_t> order(size);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto differs = [&](std::size_t a, std::size_t b) {
        return std::find_if(keys.begin(), keys.end(), [&](const KeyColumn& key) { return key[a] != key[b]; });
    };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const auto column = differs(a, b);
        return column != keys.end() && (*column)[a] < (*column)[b];
    });
    for (std::size_t begin = 0, end = 0; begin < size; begin = end) {
        Packed sum = 0;
        for (; end < size && differs(order[end], order[begin]) == keys.end(); ++end) sum += Packed(sums[order[end]]);
        if (sum == 0) continue;
        for (std::size_t i = 0; i < keys.size(); ++i) found.keys[i].push_back(keys[i][order[begin]]);
        found.sums.push_back(std::int64_t(sum));
    }
}

}  // namespace

KeySums sum_by_key(const std::vector<KeyColumn>& keys, KeyColumn sums, std::size_t size) {
    KeySums found{std::vector<std::vector<std::int64_t>>(keys.size()), {}};
    if (size == 0) return found;
    std::vector<Places> places;
    for (const KeyColumn& key : keys) places.emplace_back(key, size);
    const Packed most = std::min(kMostTable, std::max(kLeastTable, kTableFactor * size));
    if (possible_keys(places) > most) {
        for (Places& one : places) one.narrow(size);
    }
    const Packed possible = possible_keys(places);
    if (possible > kMostPacked) {
        sum_by_columns(found, keys, sums, size);
    } else if (possible > most) {
        sum_sorted(found, places, sums, size, possible);
    } else {
        sum_in_table(found, places, sums, size, possible);
    }
    return found;
}

}  // namespace musetrace::analysis
