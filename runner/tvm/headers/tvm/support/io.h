// Streams of bytes, as the sources of TVM's runtime use them: the wheel has those sources without this header.
//
// The format is what TVM writes into libraries: numbers as they lie in memory, the least significant byte first, and 64
// bits of length before texts and arrays.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace tvm {
namespace support {

class Stream;

template <typename Type, typename = void>
struct Serializer;

class Stream {
 public:
  virtual ~Stream() = default;
  virtual size_t Read(void* data, size_t nbytes) = 0;
  virtual size_t Write(const void* data, size_t nbytes) = 0;

  template <typename Type>
  void Write(const Type& value) {
    Serializer<Type>::Write(this, value);
  }
  template <typename Type>
  bool Read(Type* value) {
    return Serializer<Type>::Read(this, value);
  }
  template <typename Type>
  void WriteArray(const Type* values, size_t count) {
    for (size_t place = 0; place < count; ++place) Write(values[place]);
  }
  template <typename Type>
  bool ReadArray(Type* values, size_t count) {
    for (size_t place = 0; place < count; ++place) {
      if (!Read(values + place)) return false;
    }
    return true;
  }
};

template <typename Type>
constexpr bool is_plain =
    std::is_arithmetic_v<Type> || std::is_enum_v<Type> || std::is_same_v<Type, DLDataType> || std::is_same_v<Type, DLDevice>;

template <typename Type>
struct Serializer<Type, std::enable_if_t<is_plain<Type>>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const Type& value) { stream->Write(static_cast<const void*>(&value), sizeof value); }
  static bool Read(Stream* stream, Type* value) {
    return stream->Read(static_cast<void*>(value), sizeof *value) == sizeof *value;
  }
};

template <>
struct Serializer<std::string> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const std::string& text) {
    stream->Write<uint64_t>(text.size());
    stream->Write(static_cast<const void*>(text.data()), text.size());
  }
  static bool Read(Stream* stream, std::string* text) {
    uint64_t nbytes = 0;
    if (!stream->Read(&nbytes)) return false;
    text->resize(static_cast<size_t>(nbytes));
    return stream->Read(static_cast<void*>(text->data()), text->size()) == text->size();
  }
};

template <>
struct Serializer<ffi::String> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::String& text) { stream->Write(std::string(text)); }
  static bool Read(Stream* stream, ffi::String* text) {
    std::string content;
    if (!stream->Read(&content)) return false;
    *text = ffi::String(content);
    return true;
  }
};

template <typename Item>
struct Serializer<std::vector<Item>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const std::vector<Item>& items) {
    stream->Write<uint64_t>(items.size());
    for (const Item& item : items) stream->Write(item);
  }
  static bool Read(Stream* stream, std::vector<Item>* items) {
    uint64_t count = 0;
    if (!stream->Read(&count)) return false;
    items->resize(static_cast<size_t>(count));
    return stream->ReadArray(items->data(), items->size());
  }
};

template <typename Item>
struct Serializer<ffi::Array<Item>> {
  static constexpr bool enabled = true;
  static void Write(Stream* stream, const ffi::Array<Item>& items) {
    stream->Write(std::vector<Item>(items.begin(), items.end()));
  }
  static bool Read(Stream* stream, ffi::Array<Item>* items) {
    std::vector<Item> content;
    if (!stream->Read(&content)) return false;
    *items = ffi::Array<Item>(content.begin(), content.end());
    return true;
  }
};

}  // namespace support
}  // namespace tvm
