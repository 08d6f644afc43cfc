#include "bundle.h"

#include <dlfcn.h>

#include <mutex>
#include <string_view>

#include "folder.h"
#include "processor.h"

namespace soc {
namespace {

// Makes tensors in memory that lives as long as they do.
struct Place {
  std::shared_ptr<char> data;
  void AllocData(DLTensor* tensor) { tensor->data = data.get(); }
  void FreeData(DLTensor*) {}
};

ffi::Tensor make_view(const TensorSpec& spec, std::shared_ptr<char> data) {
  const DLDataType dtype = guarded([&] { return ffi::StringToDLDataType(spec.dtype); });
  const ffi::ShapeView shape(spec.shape.data(), spec.shape.size());
  return ffi::Tensor::FromNDAlloc(Place{std::move(data)}, shape, dtype, DLDevice{kDLCPU, 0});
}

// Keeps what TVM writes to the standard error while it loads code, a warning without content, from the user.
struct Quiet {
  Quiet() { dup2(Descriptor(open("/dev/null", O_WRONLY | O_CLOEXEC)), STDERR_FILENO); }
  ~Quiet() { dup2(former, STDERR_FILENO); }

  const Descriptor former{dup(STDERR_FILENO)};
};

// Compiled code finds TVM's functions among the names that all may use; the runner may have come with fewer rights, as a
// plug-in does.  TVM leaves sorts to functions of a library of its own, which is loaded only where code calls them.
void publish_runtime(std::string_view code) {
  Dl_info facts;
  const bool has_name = dladdr(reinterpret_cast<void*>(&TVMFFIFunctionCall), &facts) != 0;
  for (const char* name : {has_name ? facts.dli_fname : "libtvm_ffi.so", "libtvm_runtime.so"}) {
    static_cast<void>(dlopen(name, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD));
  }
  const bool sorts = code.find("tvm.contrib.sort.") != code.npos;
  if (sorts && !ffi::Function::GetGlobal("tvm.contrib.sort.argsort")) {
    static_cast<void>(dlopen("libtvm_runtime_extra.so", RTLD_NOW | RTLD_LOCAL));
  }
}

ffi::Any load_library(std::string_view code, const std::string& sha256) {
  publish_runtime(code);
  // In memory: a folder for temporary files may forbid to run what is in it.
  const Descriptor file(memfd_create(sha256.c_str(), MFD_CLOEXEC));
  if (file < 0 || write(file, code.data(), code.size()) != static_cast<ssize_t>(code.size())) {
    throw Failure(std::string("no memory for code: ") + std::strerror(errno));
  }
  // The system's loader knows libraries by their names, and would return an older one whose descriptor had this number.
  // So a running number is part of the name, in binary digits that lead nowhere else.
  static size_t count = 0;
  std::string path = "/proc/self/fd/";
  for (size_t number = count++; number > 0; number /= 2) path += number % 2 > 0 ? "./" : "/";
  path += std::to_string(file);
  static const ffi::Function load = global_function("ffi.Module.load_from_file.so");
  const Quiet quiet;
  return call(load, ffi::String(path), ffi::String("so"));
}

// What TVM loads stays until the process ends; so one module for all who load the same bytes costs nothing more.
ffi::Any shared_library(std::string_view code, const std::string& sha256) {
  static std::mutex mutex;
  static auto& modules = *new std::map<std::string, ffi::Any>();  // also there when other threads end late
  const std::lock_guard lock(mutex);
  const auto module = modules.find(sha256);
  return module != modules.end() ? module->second : modules[sha256] = load_library(code, sha256);
}

ffi::Function find_function(const ffi::Any& module, const char* name) {
  static const ffi::Function find = global_function("ffi.ModuleGetFunction");
  const auto function = call(find, module, ffi::String(name), true).as<ffi::Function>();
  if (!function) throw Failure(std::string("it has no function ") + quote(name));
  return *function;
}

void check_processor(const Manifest& manifest) {
  const std::string ours = SOC_TVM_VERSION;
  // Releases of TVM below 1.0 change its interfaces with the second number.
  const auto series = [](const std::string& version) { return version.substr(0, version.find('.', version.find('.') + 1)); };
  if (series(manifest.tvm) != series(ours)) {
    throw Failure("it comes from TVM " + quote(manifest.tvm) + ", but this runner has " + ours);
  }
  for (const StagePlan& stage : manifest.stages) {
    const std::string problem = misfit(stage.files.machine, stage.files.features);
    if (!problem.empty()) throw Failure("stage " + quote(stage.name) + " " + problem + "; build it for this one");
  }
}

Manifest load_manifest(const Folder& folder) {
  const std::string document = folder.small_file("manifest.json");
  Sha256 digest;
  digest.update(document.data(), document.size());
  // Before anything is parsed: a damaged byte is to be told as damage, not as an odd plan.
  if (folder.small_file("manifest.sha256") != digest.hex() + "  manifest.json\n") {
    throw Failure(folder.title("manifest.json") + " does not have the checksum in manifest.sha256; copy it again");
  }
  try {
    Manifest manifest = read_manifest(document);
    // Before the files are read: a bundle for another processor is refused at once, however large it is.
    check_processor(manifest);
    return manifest;
  } catch (const Failure& failure) {
    throw Failure(folder.title("manifest.json") + ": " + failure.what());
  }
}

// Files of parameters that several entries have, by their name and checksum.
using Contents = std::map<std::string, std::shared_ptr<char>>;

StageCode load_code(const Folder& folder, const StageFiles& files, Contents* contents) {
  const std::shared_ptr<char> library = folder.content(files.library);
  std::shared_ptr<char>& parameters = (*contents)[files.parameters.file + files.parameters.sha256];
  if (!parameters) parameters = folder.content(files.parameters);
  try {
    StageCode code{files.processor, shared_library({library.get(), files.library.nbytes}, files.library.sha256), {}};
    for (const TensorSpec& entry : files.entries) {
      code.parameters.push_back(make_view(entry, {parameters, parameters.get() + entry.offset}));
    }
    return code;
  } catch (const Failure& failure) {
    throw Failure(folder.title(files.library.file) + " cannot be loaded: " + failure.what());
  }
}

}  // namespace

ffi::Tensor make_tensor(const TensorSpec& spec) { return make_view(spec, allocate(spec.nbytes)); }

Bundle load_bundle(const std::string& path) {
  const Folder folder(path);
  Bundle bundle{load_manifest(folder), {}};
  Contents contents;
  for (const StagePlan& stage : bundle.manifest.stages) {
    auto& family = bundle.codes.emplace_back();
    family.push_back(load_code(folder, stage.files, &contents));
    for (const StageFiles& files : stage.files.variants) {
      // The others may be for extensions that this machine lacks on all its cores.
      if (misfit(files.machine, files.features).empty()) family.push_back(load_code(folder, files, &contents));
    }
  }
  return bundle;
}

ffi::Function make_entry(const StageCode& code) {
  const ffi::Any machine = call(find_function(code.module, "vm_load_executable"));
  constexpr int kPooled = 2;  // as in TVM's memory_manager.h
  const ffi::Function start = find_function(machine, "vm_initialization");
  call(start, static_cast<int>(kDLCPU), 0, kPooled);
  return find_function(machine, "main");
}

}  // namespace soc
