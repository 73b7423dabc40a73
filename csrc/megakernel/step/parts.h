// A GPU's receive buffers of a tree or accept launch: the best tokens of each part of the logits, of all ranks, as
// slots (sync/slots.h). Every block that has looked at a part sends it, by one warp, to each GPU that shares the model,
// its own among them; on each of them block 0 of its first rank puts all of them together, with the same result. Two
// copies alternate from one such launch to the next; which is the turn of is a number on the GPU, so that a graph of
// any launches can be replayed.
//
// Why a copy may be used again. Launch L, counted among tree and accept launches alone, uses copy L % 2. In launch L
// the warps that send make the other copy of their own GPU empty, each some parts of it; launch L + 1 fills it. Before
// anybody fills a slot of it,
//   1. who read it in launch L - 1 must have ended. The reset begins behind them: launches of a GPU follow each other.
//   2. the reset must be visible. Who fills the slot is a warp of launch L + 1, here or on a peer's GPU. Before its
//      first write all blocks of launch L have ended on its own GPU. Among them is the block that puts the parts
//      together, and that has in launch L received every part that our warps sent: each behind the warp's part of the
//      reset and, where there are peers, its fence.
// And nothing that was sent in launch L - 1 comes late: all that is sent in a launch is received in it.
//
// As in megakernel/exchange.h it is all one how many GPUs there are, and the begin and the end of a launch that was
// given up are those described there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megakernel/step_state.h"

namespace musetrace::megakernel::step {

// Parts of a row of logits that different blocks look at: those of 16 rows fill a GPU, and a rank has at least one.
inline constexpr std::uint32_t kParts = 8;

// Words of a part, 8 bytes each, sent by one store that no hardware divides: its candidates, best first, as score << 32
// | token, and the sum of exp(score - best score), a double. Neither is ever all ones, which is NaN of a kind that
// arithmetic does not make.
inline constexpr std::uint32_t kSumWord = kMaxTopK, kPartWords = kMaxTopK + 1;
inline constexpr std::uint64_t kEmptyWord = ~std::uint64_t{0};

// Within a copy: [row][word][part].
constexpr std::size_t part_word(std::uint32_t row, std::uint32_t word, std::uint32_t part) {
    return (std::size_t{row} * kPartWords + word) * kParts + part;
}
inline constexpr std::size_t kCopyWords = std::size_t{kTokens} * kPartWords * kParts;
inline constexpr std::size_t kPartsBytes = 2 * kCopyWords * sizeof(std::uint64_t);

}  // namespace musetrace::megakernel::step
