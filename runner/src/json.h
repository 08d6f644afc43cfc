// Json: a value of a JSON document that knows its place there, so that errors can name it.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <string>
#include <vector>

namespace soc {

class Json {
 public:
  // Parses a document with the parser of tvm-ffi; throws Failure if it is none.
  static Json parse(const std::string& document);

  // Field of an object; throws Failure if it is missing.
  Json operator[](const char* key) const;
  // Field of an object; null if it is missing.
  Json find(const char* key) const;
  std::vector<Json> items() const;
  std::string text() const;
  double number() const;
  int64_t integer(int64_t least, int64_t most) const;
  std::vector<int64_t> integers(int64_t least, int64_t most, size_t longest) const;
  std::vector<std::string> texts() const;
  bool is_null() const { return value_ == nullptr; }
  // Failure about this value.
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  Json(tvm::ffi::Any value, std::string path) : value_(std::move(value)), path_(std::move(path)) {}

  tvm::ffi::Any value_;
  std::string path_;
};

}  // namespace soc
