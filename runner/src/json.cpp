#include "json.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <algorithm>

#include "failure.h"
#include "ffi.h"

namespace soc {
namespace {

namespace ffi = tvm::ffi;
using Object = ffi::Map<ffi::Any, ffi::Any>;
using Array = ffi::Array<ffi::Any>;

// A manifest has seven levels.  The parser calls itself for each, and a document without end would use up the stack.
constexpr int kDeepest = 64;

void check_depth(const std::string& document) {
  int depth = 0;
  bool in_text = false;
  for (size_t place = 0; place < document.size(); ++place) {
    const char character = document[place];
    if (in_text) {
      if (character == '\\') ++place;
      in_text = character != '"';
    } else if (character == '"') {
      in_text = true;
    } else if (character == '[' || character == '{') {
      if (++depth > kDeepest) throw Failure("it is nested deeper than " + std::to_string(kDeepest) + " levels");
    } else if (character == ']' || character == '}') {
      --depth;
    }
  }
}

}  // namespace

Json Json::parse(const std::string& document) {
  check_depth(document);
  static const ffi::Function parse = global_function("ffi.json.Parse");
  return Json(guarded([&] { return parse(ffi::String(document)); }), "");
}

void Json::refuse(const std::string& problem) const {
  throw Failure((path_.empty() ? "it" : path_) + " " + problem);
}

Json Json::find(const char* key) const {
  const auto object = value_.as<Object>();
  if (!object) refuse("is no object");
  const auto entry = object->find(ffi::String(key));
  const std::string path = path_.empty() ? key : path_ + "." + key;
  return Json(entry == object->end() ? ffi::Any(nullptr) : (*entry).second, path);
}

Json Json::operator[](const char* key) const {
  Json field = find(key);
  if (field.is_null()) field.refuse("is missing");
  return field;
}

std::vector<Json> Json::items() const {
  const auto array = value_.as<Array>();
  if (!array) refuse("is no array");
  std::vector<Json> items;
  items.reserve(array->size());
  for (const ffi::Any& item : *array) items.push_back(Json(item, path_ + "[" + std::to_string(items.size()) + "]"));
  return items;
}

std::string Json::text() const {
  const auto text = value_.as<ffi::String>();
  if (!text) refuse("is no text");
  return std::string(text->data(), text->size());
}

double Json::number() const {
  if (value_.type_index() == kTVMFFIInt) return static_cast<double>(value_.cast<int64_t>());
  if (value_.type_index() != kTVMFFIFloat) refuse("is no number");
  return value_.cast<double>();
}

int64_t Json::integer(int64_t least, int64_t most) const {
  if (value_.type_index() != kTVMFFIInt) refuse("is no integer");
  const int64_t value = value_.cast<int64_t>();
  if (value < least || value > most) {
    refuse("is " + std::to_string(value) + "; it must be from " + std::to_string(least) + " to " +
           std::to_string(most));
  }
  return value;
}

std::vector<int64_t> Json::integers(int64_t least, int64_t most, size_t longest) const {
  std::vector<int64_t> values;
  for (const Json& item : items()) values.push_back(item.integer(least, most));
  if (values.size() > longest) refuse("has more than " + std::to_string(longest) + " elements");
  return values;
}

std::vector<std::string> Json::texts() const {
  std::vector<std::string> values;
  for (const Json& item : items()) values.push_back(item.text());
  return values;
}

}  // namespace soc
