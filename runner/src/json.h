// Json: a value of a JSON document that knows its place there, so that errors can name it.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <functional>

#include "ffi.h"

namespace soc {

class Json {
 public:
  // Parses a document with the parser of tvm-ffi; throws Failure if it is none.
  static Json parse(const std::string& document) {
    check_depth(document);
    static const ffi::Function parser = global_function("ffi.json.Parse");
    return Json(call(parser, ffi::String(document)), "");
  }

  // Field of an object; null if it is missing, or the object is.
  Json find(const char* key) const {
    const std::string path = path_.empty() ? key : path_ + "." + key;
    if (is_null()) return Json(nullptr, path);
    const auto object = as<ffi::Map<ffi::Any, ffi::Any>>("object");
    const auto entry = object.find(ffi::String(key));
    return Json(entry == object.end() ? ffi::Any(nullptr) : (*entry).second, path);
  }
  // Field of an object; throws Failure if it is missing.
  Json operator[](const char* key) const {
    Json field = find(key);
    if (field.is_null()) field.refuse("is missing");
    return field;
  }

  // Elements of an array; none if it is missing.
  std::vector<Json> items() const {
    std::vector<Json> elements;
    if (is_null()) return elements;
    for (const ffi::Any& item : as<ffi::Array<ffi::Any>>("array")) {
      elements.push_back(Json(item, path_ + "[" + std::to_string(elements.size()) + "]"));
    }
    return elements;
  }
  // Elements of an array, as `read` returns them.
  template <typename Read>
  auto list(Read read) const {
    std::vector<std::decay_t<std::invoke_result_t<Read, const Json&>>> values;
    for (const Json& item : items()) values.push_back(std::invoke(read, item));
    return values;
  }

  std::vector<int64_t> integers(int64_t least, int64_t most) const {
    return list([&](const Json& item) { return item.integer(least, most); });
  }

  std::string text() const { return as<ffi::String>("text"); }
  double number() const {
    return value_.type_index() == kTVMFFIInt ? static_cast<double>(value_.cast<int64_t>()) : as<double>("number");
  }
  int64_t integer(int64_t least, int64_t most) const {
    // Else a truth value would do.
    if (value_.type_index() != kTVMFFIInt) refuse("is no integer");
    const int64_t value = value_.cast<int64_t>();
    if (value >= least && value <= most) return value;
    refuse("is " + std::to_string(value) + "; it must be from " + std::to_string(least) + " to " + std::to_string(most));
  }

  bool is_null() const { return value_ == nullptr; }
  // Failure about this value.
  [[noreturn]] void refuse(const std::string& problem) const {
    throw Failure((path_.empty() ? "it" : path_) + " " + problem);
  }

 private:
  Json(ffi::Any value, std::string path) : value_(std::move(value)), path_(std::move(path)) {}

  template <typename Type>
  Type as(const char* kind) const {
    const auto value = value_.as<Type>();
    if (!value) refuse(std::string("is no ") + kind);
    return *value;
  }

  // A manifest has seven levels.  The parser calls itself for each, and a document without end would use up the stack.
  static void check_depth(const std::string& document) {
    constexpr int kDeepest = 64;
    int depth = 0;
    bool in_text = false;
    for (size_t place = 0; place < document.size(); ++place) {
      const char character = document[place];
      if (character == '"') in_text = !in_text;
      if (in_text) place += character == '\\';
      else if (character == ']' || character == '}') --depth;
      else if ((character == '[' || character == '{') && ++depth > kDeepest) {
        throw Failure("it is nested deeper than " + std::to_string(kDeepest) + " levels");
      }
    }
  }

  ffi::Any value_;
  std::string path_;
};

}  // namespace soc
