#include "processor.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "failure.h"

namespace soc {
namespace {

// The larger of Linux's limits, 8192 cores.
constexpr int kMostCores = 8192;

struct CpuSet {
  CpuSet() : set(CPU_ALLOC(kMostCores)), size(CPU_ALLOC_SIZE(kMostCores)) { CPU_ZERO_S(size, set); }
  ~CpuSet() { CPU_FREE(set); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  cpu_set_t* const set;
  const size_t size;
};

std::string canonical(std::string machine) {
  std::transform(machine.begin(), machine.end(), machine.begin(), [](unsigned char c) { return std::tolower(c); });
  if (machine == "amd64" || machine == "x64") return "x86_64";
  if (machine == "arm64") return "aarch64";
  // All of them are 32-bit Arm; compilers call them armv7a or armv7, Linux calls them armv7l.
  return machine.rfind("armv7", 0) == 0 ? "armv7l" : machine;
}

std::string this_machine() {
#if defined(__arm__)
  // A 64-bit system that runs this 32-bit program gives its own name.
  return "armv7l";
#else
  utsname names;
  return uname(&names) == 0 ? canonical(names.machine) : "";
#endif
}

std::set<std::string> listed_flags() {
  const std::string key = this_machine() == "x86_64" ? "flags" : "Features";
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(key, 0) != 0 || line.find(':') == std::string::npos) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

}  // namespace

std::string misfit(const std::string& machine, const std::vector<std::string>& features) {
  if (!machine.empty() && canonical(machine) != this_machine()) {
    return "is built for " + quote(machine) + ", but this machine is " + this_machine();
  }
  const std::set<std::string> flags = listed_flags();
  for (const std::string& feature : features) {
    // A system that lists nothing may have everything.
    if (!flags.empty() && !flags.count(feature)) return "uses " + quote(feature) + ", which this processor does not have";
  }
  return "";
}

std::vector<int> usable_cores(const std::vector<int>& cores) {
  CpuSet allowed;
  if (sched_getaffinity(0, allowed.size, allowed.set) != 0) return {};
  std::set<int> usable;
  for (const int core : cores) {
    if (core < kMostCores && CPU_ISSET_S(static_cast<size_t>(core), allowed.size, allowed.set)) usable.insert(core);
  }
  return {usable.begin(), usable.end()};
}

void pin(const std::vector<int>& cores) {
  CpuSet wanted;
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), wanted.size, wanted.set);
  // Slower, but right without it; so a system that forbids it is no error.
  if (!cores.empty()) static_cast<void>(sched_setaffinity(0, wanted.size, wanted.set));
}

}  // namespace soc
