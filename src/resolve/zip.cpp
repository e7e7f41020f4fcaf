#include "resolve/zip.h"

#include "base/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>
#include <zlib.h>

namespace culet::resolve {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kEndSignature = 0x06054b50, kEntrySignature = 0x02014b50,
                   kLocalSignature = 0x04034b50;
constexpr size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30, kLongestComment = 65535;
constexpr uint32_t kIn64 = 0xffffffff;  // the real value is in a ZIP64 record

struct Member {
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0, packed = 0, size = 0, local = 0;
};

struct Directory {
  uint16_t entries = 0;
  uint32_t bytes = 0, offset = 0;
};

tl::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorCode::kCorrupt, fmt::format("the archive is damaged ({})", what));
}

Result<Directory> find_directory(Bytes archive) {
  if (archive.size() < kEndBytes) return corrupt("it is too short");
  const size_t last = archive.size() - kEndBytes;
  const size_t first = last > kLongestComment ? last - kLongestComment : 0;
  for (size_t at = last + 1; at-- > first;) {
    const std::byte* p = archive.data() + at;
    if (base::load_le<uint32_t>(p) != kEndSignature) continue;
    if (base::load_le<uint16_t>(p + 20) != last - at) continue;  // the comment ends the file
    const Directory found{base::load_le<uint16_t>(p + 10), base::load_le<uint32_t>(p + 12),
                          base::load_le<uint32_t>(p + 16)};
    if (found.offset == kIn64 || found.bytes == kIn64 || found.entries == 0xffff) {
      return fail(ErrorCode::kUnsupported,
                  "the archive is in ZIP64 format, which is not supported");
    }
    if (uint64_t{found.offset} + found.bytes > at) return corrupt("its directory is outside of it");
    return found;
  }
  return corrupt("it has no directory");
}

Result<Member> find_member(Bytes archive, const Directory& directory, std::string_view name) {
  base::Cursor cursor(archive.subspan(directory.offset, directory.bytes));
  std::optional<Member> found;
  for (uint16_t i = 0; i < directory.entries; ++i) {
    Bytes entry, entry_name;
    if (!cursor.take(kEntryBytes, &entry)) return corrupt("its directory ends early");
    const std::byte* p = entry.data();
    if (base::load_le<uint32_t>(p) != kEntrySignature)
      return corrupt("a directory entry is invalid");
    const uint64_t rest =
        uint64_t{base::load_le<uint16_t>(p + 30)} + base::load_le<uint16_t>(p + 32);
    if (!cursor.take(base::load_le<uint16_t>(p + 28), &entry_name) || !cursor.skip(rest)) {
      return corrupt("its directory ends early");
    }
    const std::string_view text(reinterpret_cast<const char*>(entry_name.data()),
                                entry_name.size());
    if (text != name) continue;
    if (found) return corrupt(fmt::format("it has {} twice", name));
    found = Member{base::load_le<uint16_t>(p + 8),  base::load_le<uint16_t>(p + 10),
                   base::load_le<uint32_t>(p + 16), base::load_le<uint32_t>(p + 20),
                   base::load_le<uint32_t>(p + 24), base::load_le<uint32_t>(p + 42)};
  }
  if (!found) return fail(ErrorCode::kNotFound, fmt::format("the archive has no {}", name));
  return *found;
}

Result<Bytes> packed_bytes(Bytes archive, const Member& member) {
  if (member.packed == kIn64 || member.size == kIn64 || member.local == kIn64) {
    return fail(ErrorCode::kUnsupported, "the archive is in ZIP64 format, which is not supported");
  }
  base::Cursor cursor(archive);
  Bytes header, data;
  if (!cursor.skip(member.local) || !cursor.take(kLocalBytes, &header) ||
      base::load_le<uint32_t>(header.data()) != kLocalSignature) {
    return corrupt("a member is not where the directory says");
  }
  const uint64_t names = uint64_t{base::load_le<uint16_t>(header.data() + 26)} +
                         base::load_le<uint16_t>(header.data() + 28);
  if (!cursor.skip(names) || !cursor.take(member.packed, &data)) {
    return corrupt("a member ends after the archive");
  }
  return data;
}

// Hands bytes on, never more than promised.
class Output {
 public:
  Output(const Member& member, const ZipSink& sink) : member_(member), sink_(sink) {}
  Result<void> write(Bytes bytes) {
    if (bytes.size() > member_.size - written_) return corrupt("a member is longer than it says");
    written_ += uint32_t(bytes.size());
    crc_ =
        uint32_t(::crc32(crc_, reinterpret_cast<const Bytef*>(bytes.data()), uInt(bytes.size())));
    return sink_(bytes);
  }
  Result<void> finish() const {
    if (written_ != member_.size) return corrupt("a member is shorter than it says");
    if (crc_ != member_.crc) return corrupt("the checksum of a member is wrong");
    return {};
  }

 private:
  const Member& member_;
  const ZipSink& sink_;
  uint32_t written_ = 0, crc_ = 0;
};

constexpr size_t kChunk = 1 << 20;

Result<void> copy(Bytes data, Output* out) {
  while (!data.empty()) {
    const Bytes chunk = data.first(std::min(kChunk, data.size()));
    CULET_TRY_VOID(out->write(chunk));
    data = data.subspan(chunk.size());
  }
  return {};
}

Result<void> inflate_all(Bytes data, Output* out) {
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return fail(ErrorCode::kExhausted, "out of memory while unpacking");
  }
  std::vector<std::byte> buffer(kChunk);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
  stream.avail_in = uInt(data.size());  // below 4 GiB, by the format
  Result<void> done;
  int status = Z_OK;
  while (done && status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = uInt(buffer.size());
    status = ::inflate(&stream, Z_NO_FLUSH);
    const size_t made = buffer.size() - stream.avail_out;
    if (made > 0) done = out->write(Bytes(buffer).first(made));
    if (made == 0 && status == Z_OK && stream.avail_in == 0) status = Z_BUF_ERROR;
  }
  ::inflateEnd(&stream);
  if (done && status != Z_STREAM_END) return corrupt("a member cannot be unpacked");
  return done;
}

}  // namespace

Result<void> extract_member(Bytes archive, std::string_view name, uint64_t limit,
                            const ZipSink& sink) {
  constexpr uint16_t kEncrypted = 1, kStored = 0, kDeflated = 8;
  CULET_TRY(const Directory directory, find_directory(archive));
  CULET_TRY(const Member member, find_member(archive, directory, name));
  if (member.size > limit) return corrupt("a member is longer than it may be");
  CULET_TRY(const Bytes data, packed_bytes(archive, member));
  if ((member.flags & kEncrypted) || (member.method != kStored && member.method != kDeflated)) {
    return fail(ErrorCode::kUnsupported, "the archive's member is encrypted or of a rare method");
  }
  Output out(member, sink);
  CULET_TRY_VOID(member.method == kStored ? copy(data, &out) : inflate_all(data, &out));
  return out.finish();
}

}  // namespace culet::resolve
