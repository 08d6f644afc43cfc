// Folder: the files of a bundle, verified.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "manifest.h"
#include "sha256.h"

namespace soc {

struct Descriptor {
  explicit Descriptor(int descriptor) : number(descriptor) {}
  ~Descriptor() { if (number >= 0) close(number); }
  Descriptor(const Descriptor&) = delete;
  operator int() const { return number; }

  const int number;
};

// Memory that begins where kernels may rely on it.
inline std::shared_ptr<char> allocate(size_t nbytes) {
  void* const memory = std::aligned_alloc(64, (nbytes + 64) / 64 * 64);
  if (memory == nullptr) throw Failure("there is no memory for " + std::to_string(nbytes) + " bytes");
  return {static_cast<char*>(memory), std::free};
}

// The folder itself, not its name: all files come from one bundle, also if another one is put in its place.
class Folder {
 public:
  explicit Folder(const std::string& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw Failure(quote(path) + " cannot be opened: " + std::strerror(errno));
  }

  std::string title(const std::string& name) const { return quote(path_) + ": " + quote(name); }

  std::string small_file(const std::string& name) const {
    const Descriptor file(open_file(name));
    // As in pipeline/executor/manifest.py.
    constexpr size_t kLargest = 64 << 20;
    const auto nbytes = static_cast<uint64_t>(facts_of(file, name).st_size);
    if (nbytes > kLargest) throw Failure(title(name) + " is too large for a bundle's");
    std::string content(static_cast<size_t>(nbytes), '\0');
    read_block(file, content.data(), content.size(), name);
    return content;
  }

  // Bytes of a file that are what the manifest says: read once, into memory of this process's own, or mapped and shared
  // with others if they are sure to stay.  A file may be overwritten at any time, also while it is mapped.
  std::shared_ptr<char> content(const BundleFile& part) const {
    const Descriptor file(open_file(part.file));
    const struct stat facts = facts_of(file, part.file);
    if (static_cast<uint64_t>(facts.st_size) != part.nbytes) {
      throw Failure(title(part.file) + " has " + std::to_string(facts.st_size) + " bytes instead of " +
                    std::to_string(part.nbytes) + "; copy the bundle again");
    }
    const std::shared_ptr<char> pages = is_fixed(file, facts) ? map(file, part.nbytes) : nullptr;
    const std::shared_ptr<char> data = pages ? pages : allocate(part.nbytes);
    // Of bytes that are still in the processor's cache.
    constexpr size_t kBlock = 1 << 20;
    Sha256 digest;
    for (size_t start = 0; start < part.nbytes; start += kBlock) {
      const size_t nbytes = std::min(kBlock, part.nbytes - start);
      if (!pages) read_block(file, data.get() + start, nbytes, part.file);
      digest.update(data.get() + start, nbytes);
    }
    if (digest.hex() == part.sha256) return data;
    throw Failure(title(part.file) + " has been changed (SHA-256 differs); copy the bundle again");
  }

 private:
  int open_file(const std::string& name) const {
    // Opening a pipe would wait until somebody writes to it.
    const int file = openat(descriptor_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) throw Failure(title(name) + " cannot be opened: " + std::strerror(errno));
    return file;
  }

  struct stat facts_of(int file, const std::string& name) const {
    struct stat facts;
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) throw Failure(title(name) + " is no regular file");
    return facts;
  }

  void read_block(int file, char* target, size_t nbytes, const std::string& name) const {
    for (ssize_t came = 0; nbytes > 0; target += came, nbytes -= static_cast<size_t>(came)) {
      came = read(file, target, nbytes);
      if (came < 0) throw Failure(title(name) + " cannot be read: " + std::strerror(errno));
      if (came == 0) throw Failure(title(name) + " became shorter while it was read");
    }
  }

  // Whether nobody may write to a file, so that what is mapped of it stays as it was verified.
  static bool is_fixed(int file, const struct stat& facts) {
    struct statvfs system;
    return (facts.st_mode & 0222) == 0 || (fstatvfs(file, &system) == 0 && (system.f_flag & ST_RDONLY) != 0);
  }

  // Null if the system does not.
  static std::shared_ptr<char> map(int file, size_t nbytes) {
    void* const pages = nbytes > 0 ? mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    if (pages == MAP_FAILED) return nullptr;
    return {static_cast<char*>(pages), [nbytes](char* mapped) { munmap(mapped, nbytes); }};
  }

  const std::string path_;
  const Descriptor descriptor_;
};

}  // namespace soc
