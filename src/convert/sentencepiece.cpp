#include "convert/sentencepiece.h"

#include "base/bytes.h"

#include <fmt/format.h>

#include <bit>

namespace culet::convert {
namespace {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of a message.
struct Field {
  uint32_t number = 0, wire = 0;
  uint64_t value = 0;                // of a varint or a fixed number
  std::span<const std::byte> bytes;  // of a string or a message

  bool is(uint32_t n, Wire w) const { return number == n && wire == w; }
  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

bool read_varint(base::Cursor* cursor, uint64_t* out) {
  *out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte = 0;
    if (!cursor->read(&byte)) return false;
    *out |= uint64_t(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

bool read_field(base::Cursor* cursor, Field* field) {
  uint64_t tag = 0;
  if (!read_varint(cursor, &tag) || tag >> 3 > 0x1fffffff) return false;
  *field = {uint32_t(tag >> 3), uint32_t(tag & 7), 0, {}};
  switch (field->wire) {
    case kVarint:
      return read_varint(cursor, &field->value);
    case kFixed64:
      return cursor->read(&field->value);
    case kFixed32: {
      uint32_t value = 0;
      if (!cursor->read(&value)) return false;
      field->value = value;
      return true;
    }
    case kBytes: {
      uint64_t length = 0;
      return read_varint(cursor, &length) && cursor->take(length, &field->bytes);
    }
    default:
      return false;
  }
}

// fn(field) for each field of a message; false where the bytes are none.
template <class F>
bool each_field(std::span<const std::byte> message, F&& fn) {
  base::Cursor cursor(message);
  while (cursor.remaining() > 0) {
    Field field;
    if (!read_field(&cursor, &field) || !fn(field)) return false;
  }
  return true;
}

bool read_piece(std::span<const std::byte> message, SentencePieces::Piece* piece) {
  constexpr int32_t kKinds = 6;
  return each_field(message, [piece](const Field& field) {
    if (field.is(1, kBytes)) piece->text = field.text();
    if (field.is(2, kFixed32)) piece->score = std::bit_cast<float>(uint32_t(field.value));
    if (field.is(3, kVarint)) {
      if (field.value < 1 || field.value > uint64_t(kKinds)) return false;
      piece->kind = int32_t(field.value);
    }
    return true;
  });
}

}  // namespace

Result<SentencePieces> parse_sentencepiece(std::span<const std::byte> bytes,
                                           const std::string& name) {
  constexpr uint64_t kBpe = 2;
  SentencePieces out;
  const bool good = each_field(bytes, [&out](const Field& field) {
    if (field.is(1, kBytes)) return read_piece(field.bytes, &out.pieces.emplace_back());
    if (field.is(2, kBytes)) {
      return each_field(field.bytes, [&out](const Field& trainer) {
        if (trainer.is(3, kVarint)) out.is_bpe = trainer.value == kBpe;
        return true;
      });
    }
    if (field.is(3, kBytes)) {
      return each_field(field.bytes, [&out](const Field& normalizer) {
        if (normalizer.is(3, kVarint)) out.add_space_prefix = normalizer.value != 0;
        return true;
      });
    }
    return true;
  });
  if (good && !out.pieces.empty()) return out;
  return fail(
      ErrorCode::kCorrupt,
      fmt::format("{} is not a SentencePiece model, or it is cut or damaged; download it again",
                  name));
}

}  // namespace culet::convert
