// The journal file: rank-0000.mtj. Append-only; each chunk is one write(2). Little-endian.
//
//   FileHeader, then chunks: ChunkHeader + payload, the last one of type kEnd.
//
// The file's crc covers the FileHeader bytes before it. A chunk's crc covers its header (up to the crc field) and
// its payload, starts from the file's crc (so a chunk of another recording never fits), and seq grows by one per
// chunk (so a swapped, doubled or dropped chunk is seen). CRC32 is zlib's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace musetrace::abi {

inline constexpr char kFileMagic[8] = {'M', 'U', 'S', 'E', 'T', 'R', 'C', '\n'};
inline constexpr std::uint16_t kFormatMajor = 1;
inline constexpr std::uint16_t kFormatMinor = 0;
inline constexpr std::uint32_t kChunkMagic = 0x4B48434D;  // "MCHK"
inline constexpr std::uint64_t kMaxChunkBytes = 256ull << 20;

enum class ChunkType : std::uint32_t {
    kMeta = 1,    // JSON: device, clock, build, job table, model, rank
    kClock = 2,   // JSON: pairs of device clock and host clock
    kStamps = 3,  // one Arrow IPC stream with one record batch: the stamp buffer of one launch of one rank
    kStep = 4,    // JSON: one step's host times and what it decoded
    kLoss = 5,    // JSON: what was lost, where, and how much
    kReport = 6,  // JSON: a wait report
    kEnd = 7,     // JSON: totals and why the recording ended
};

struct FileHeader {
    char magic[8];
    std::uint16_t major;
    std::uint16_t minor;
    std::uint32_t flags;
    std::uint8_t recording_id[16];
    std::uint32_t crc;
};
static_assert(sizeof(FileHeader) == 36 && offsetof(FileHeader, crc) == 32);

#pragma pack(push, 1)
struct ChunkHeader {
    std::uint32_t magic;
    std::uint32_t type;
    std::uint64_t length;
    std::uint32_t seq;
    std::uint32_t crc;
};
#pragma pack(pop)
static_assert(sizeof(ChunkHeader) == 24 && offsetof(ChunkHeader, crc) == 20);

}  // namespace musetrace::abi
