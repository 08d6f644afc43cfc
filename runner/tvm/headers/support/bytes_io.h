// Streams into and out of texts.
#pragma once

#include <tvm/support/io.h>

#include <algorithm>

namespace tvm {
namespace support {

class BytesInStream : public Stream {
 public:
  // Of a text or of bytes, which have to live as long.
  template <typename Content>
  explicit BytesInStream(const Content& content) : next_(content.data()), left_(content.size()) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void* data, size_t nbytes) override {
    nbytes = std::min(nbytes, left_);
    std::memcpy(data, next_, nbytes);
    next_ += nbytes, left_ -= nbytes;
    return nbytes;
  }
  size_t Write(const void*, size_t) override { return 0; }

 private:
  const char* next_;
  size_t left_;
};

class BytesOutStream : public Stream {
 public:
  explicit BytesOutStream(std::string* content) : content_(content) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void*, size_t) override { return 0; }
  size_t Write(const void* data, size_t nbytes) override {
    content_->append(static_cast<const char*>(data), nbytes);
    return nbytes;
  }

 private:
  std::string* content_;
};

}  // namespace support
}  // namespace tvm
