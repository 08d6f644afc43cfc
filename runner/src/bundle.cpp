#include "bundle.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "failure.h"
#include "ffi.h"
#include "processor.h"
#include "sha256.h"

namespace soc {
namespace {

namespace ffi = tvm::ffi;

constexpr size_t kAlignment = 64;
// As in pipeline/executor/manifest.py.
constexpr size_t kLargestManifest = 64 << 20;
// Bytes that are still in the processor's cache when their checksum is computed.
constexpr size_t kBlock = 1 << 20;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

// Bytes that begin where kernels may rely on it.
struct Buffer {
  explicit Buffer(size_t size) : nbytes(size) {
    const size_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
    data = static_cast<char*>(std::aligned_alloc(kAlignment, std::max(whole, kAlignment)));
    if (data == nullptr) throw Failure("there is no memory for " + std::to_string(size) + " bytes");
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data;
  size_t nbytes;
};

using SharedBuffer = std::shared_ptr<Buffer>;

// Makes tensors inside of a buffer, which lives as long as they do.
struct BufferAllocator {
  SharedBuffer buffer;
  size_t offset;
  void AllocData(DLTensor* tensor) { tensor->data = buffer->data + offset; }
  void FreeData(DLTensor*) {}
};

ffi::Tensor make_view(const TensorSpec& spec, SharedBuffer buffer, size_t offset) {
  const DLDataType dtype = guarded([&] { return ffi::StringToDLDataType(spec.dtype); });
  return ffi::Tensor::FromNDAlloc(BufferAllocator{std::move(buffer), offset}, ffi::ShapeView(spec.shape.data(), spec.shape.size()), dtype,
                                  DLDevice{kDLCPU, 0});
}

// The folder itself, not its name: all files come from one bundle, also if another one is put in its place.
class Folder {
 public:
  explicit Folder(const std::string& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_.get() < 0) throw Failure(quote(path) + " cannot be opened: " + std::strerror(errno));
  }

  std::string small_file(const char* name) const {
    const Descriptor file = open_file(name);
    const size_t nbytes = size_of(file, name);
    if (nbytes > kLargestManifest) throw Failure(title(name) + " is too large for a bundle's");
    std::string content(nbytes, '\0');
    read_block(file, content.data(), nbytes, name);
    return content;
  }

  // Bytes of a file that are what the manifest says.  They are read once, into memory of this process's own: a file may
  // be overwritten at any time, also while it is mapped.
  SharedBuffer content(const BundleFile& part) const {
    const Descriptor file = open_file(part.file);
    if (const size_t nbytes = size_of(file, part.file); nbytes != static_cast<uint64_t>(part.nbytes)) {
      throw Failure(title(part.file) + " has " + std::to_string(nbytes) + " bytes instead of " +
                    std::to_string(part.nbytes) + "; copy the bundle again");
    }
    auto buffer = std::make_shared<Buffer>(static_cast<size_t>(part.nbytes));
    Sha256 digest;
    for (size_t start = 0; start < buffer->nbytes; start += kBlock) {
      const size_t nbytes = std::min(kBlock, buffer->nbytes - start);
      read_block(file, buffer->data + start, nbytes, part.file);
      digest.update(buffer->data + start, nbytes);
    }
    if (digest.hex() != part.sha256) {
      throw Failure(title(part.file) + " has been changed (SHA-256 differs); copy the bundle again");
    }
    return buffer;
  }

  std::string title(const std::string& name) const { return quote(path_) + ": " + quote(name); }

 private:
  Descriptor open_file(const std::string& name) const {
    // Opening a pipe would wait until somebody writes to it.
    Descriptor file(openat(descriptor_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) throw Failure(title(name) + " cannot be opened: " + std::strerror(errno));
    return Descriptor(file.release());
  }

  size_t size_of(const Descriptor& file, const std::string& name) const {
    struct stat facts;
    if (fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) throw Failure(title(name) + " is no regular file");
    return static_cast<size_t>(facts.st_size);
  }

  void read_block(const Descriptor& file, char* target, size_t nbytes, const std::string& name) const {
    for (ssize_t came = 0; nbytes > 0; target += came, nbytes -= static_cast<size_t>(came)) {
      came = read(file.get(), target, nbytes);
      if (came < 0 && errno == EINTR) came = 0;
      else if (came < 0) throw Failure(title(name) + " cannot be read: " + std::strerror(errno));
      else if (came == 0) throw Failure(title(name) + " became shorter while it was read");
    }
  }

  std::string path_;
  Descriptor descriptor_;
};

// Keeps what TVM writes to the standard error while it loads code, a warning without content, from the user.
class Quiet {
 public:
  Quiet() : former_(dup(STDERR_FILENO)) {
    const Descriptor nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (former_.get() >= 0 && nowhere.get() >= 0) dup2(nowhere.get(), STDERR_FILENO);
  }
  ~Quiet() {
    if (former_.get() >= 0) dup2(former_.get(), STDERR_FILENO);
  }

 private:
  Descriptor former_;
};

// TVM leaves sorts to functions of a library of its own, which is loaded only where code calls them.
void load_sorts(const Buffer& library) {
  if (std::string_view(library.data, library.nbytes).find("tvm.contrib.sort.") == std::string_view::npos) return;
  if (!ffi::Function::GetGlobal("tvm.contrib.sort.argsort")) {
    static_cast<void>(dlopen("libtvm_runtime_extra.so", RTLD_NOW | RTLD_LOCAL));
  }
}

// Compiled code finds TVM's functions among the names that all may use; the runner may have come with fewer rights, as a
// plug-in does.
void publish_runtime() {
  Dl_info facts;
  if (dladdr(reinterpret_cast<void*>(&TVMFFIFunctionCall), &facts) != 0) {
    static_cast<void>(dlopen(facts.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD));
  }
  static_cast<void>(dlopen("libtvm_runtime.so", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD));
}

ffi::Any load_library(const Buffer& library, const std::string& sha256) {
  publish_runtime();
  load_sorts(library);
  // In memory: a folder for temporary files may forbid to run what is in it.
  Descriptor file(memfd_create(sha256.c_str(), MFD_CLOEXEC));
  if (file.get() < 0) throw Failure(std::string("no memory for code: ") + std::strerror(errno));
  for (size_t start = 0; start < library.nbytes;) {
    const ssize_t wrote = write(file.get(), library.data + start, library.nbytes - start);
    if (wrote < 0) throw Failure(std::string("no memory for code: ") + std::strerror(errno));
    start += static_cast<size_t>(wrote);
  }
  // The system's loader knows libraries by their names, and would return an older one whose descriptor had this number.
  static size_t count = 0;
  std::string path = "/proc/self/fd/";
  for (size_t number = count++; number > 0; --number) path += "./";
  path += std::to_string(file.get());
  static const ffi::Function load = global_function("ffi.Module.load_from_file.so");
  ffi::Any module = guarded([&] {
    const Quiet quiet;
    return load(ffi::String(path), ffi::String("so"));
  });
  return module;
}

// What TVM loads stays until the process ends; so one module for all who load the same bytes costs nothing more.
ffi::Any shared_library(const Buffer& library, const std::string& sha256) {
  static std::mutex mutex;
  static auto& modules = *new std::map<std::string, ffi::Any>();  // also there when other threads end late
  const std::lock_guard<std::mutex> lock(mutex);
  auto module = modules.find(sha256);
  if (module == modules.end()) module = modules.emplace(sha256, load_library(library, sha256)).first;
  return module->second;
}

ffi::Function find_function(const ffi::Any& module, const char* name) {
  static const ffi::Function find = global_function("ffi.ModuleGetFunction");
  const auto function =
      guarded([&] { return find(module, ffi::String(name), true).cast<ffi::Optional<ffi::Function>>(); });
  if (!function) throw Failure(std::string("it has no function ") + quote(name));
  return *function;
}

void check_processor(const Manifest& manifest) {
  const std::string ours = SOC_TVM_VERSION;
  // Releases of TVM below 1.0 change its interfaces with the second number.
  const auto series = [](const std::string& version) {
    const size_t dot = version.find('.');
    return dot == std::string::npos ? version : version.substr(0, version.find('.', dot + 1));
  };
  if (series(manifest.tvm) != series(ours)) {
    throw Failure("it comes from TVM " + quote(manifest.tvm) + ", but this runner has " + ours);
  }
  for (const StagePlan& stage : manifest.stages) {
    const std::string problem = misfit(stage.files.machine, stage.files.features);
    if (!problem.empty()) throw Failure("stage " + quote(stage.name) + " " + problem + "; build it for this one");
  }
}

}  // namespace

ffi::Tensor make_tensor(const TensorSpec& spec) {
  auto buffer = std::make_shared<Buffer>(spec.nbytes);
  return make_view(spec, std::move(buffer), 0);
}

Bundle load_bundle(const std::string& path) {
  const Folder folder(path);
  const std::string document = folder.small_file("manifest.json");
  Sha256 digest;
  digest.update(document.data(), document.size());
  // Before anything is parsed: a damaged byte is to be told as damage, not as an odd plan.
  if (folder.small_file("manifest.sha256") != digest.hex() + "  manifest.json\n") {
    throw Failure(folder.title("manifest.json") + " does not have the checksum in manifest.sha256; copy it again");
  }
  Bundle bundle;
  try {
    bundle.manifest = read_manifest(document);
    // Before the files are read: a bundle for another processor is refused at once, however large it is.
    check_processor(bundle.manifest);
  } catch (const Failure& failure) {
    throw Failure(folder.title("manifest.json") + ": " + failure.what());
  }
  for (const StagePlan& stage : bundle.manifest.stages) {
    StageCode code;
    const SharedBuffer library = folder.content(stage.files.library);
    const SharedBuffer parameters = folder.content(stage.files.parameters);
    try {
      code.module = shared_library(*library, stage.files.library.sha256);
      for (const ParameterEntry& entry : stage.files.entries) {
        code.parameters.push_back(make_view(entry.array, parameters, entry.array.nbytes ? entry.offset : 0));
      }
    } catch (const Failure& failure) {
      throw Failure(folder.title(stage.files.library.file) + " cannot be loaded: " + failure.what());
    }
    bundle.codes.push_back(std::move(code));
  }
  return bundle;
}

ffi::Function make_entry(const StageCode& code) {
  const ffi::Any machine = guarded([&] { return find_function(code.module, "vm_load_executable")(); });
  constexpr int kPooled = 2;  // as in TVM's memory_manager.h
  const ffi::Function start = find_function(machine, "vm_initialization");
  guarded([&] { return start(static_cast<int>(kDLCPU), 0, kPooled); });
  return find_function(machine, "main");
}

}  // namespace soc
