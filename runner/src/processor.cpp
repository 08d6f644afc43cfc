#include "processor.h"

#include <sched.h>
#include <sys/utsname.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace soc {
namespace {

// The larger of Linux's limits, 8192 cores.
struct CpuSet {
  cpu_set_t sets[8192 / CPU_SETSIZE] = {};
};

std::string this_machine() {
#if defined(__arm__)
  // A 64-bit system that runs this 32-bit program gives its own name.
  return "armv7l";
#else
  utsname names;
  return uname(&names) == 0 ? names.machine : "";
#endif
}

// An Arm core by its main identification register; the parts are those of pipeline/executor/core_kinds.py.
std::string arm_core(int64_t core) {
  static const std::map<unsigned long, const char*> parts = {
      {0xd03, "cortex-a53"},  {0xd04, "cortex-a35"},  {0xd05, "cortex-a55"},   {0xd07, "cortex-a57"},
      {0xd08, "cortex-a72"},  {0xd09, "cortex-a73"},  {0xd0a, "cortex-a75"},   {0xd0b, "cortex-a76"},
      {0xd0c, "neoverse-n1"}, {0xd0d, "cortex-a77"},  {0xd40, "neoverse-v1"},  {0xd41, "cortex-a78"},
      {0xd42, "cortex-a78ae"}, {0xd44, "cortex-x1"},  {0xd46, "cortex-a510"},  {0xd47, "cortex-a710"},
      {0xd48, "cortex-x2"},   {0xd49, "neoverse-n2"}, {0xd4b, "cortex-a78c"},  {0xd4d, "cortex-a715"},
      {0xd4e, "cortex-x3"}};
  std::ifstream stream("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/regs/identification/midr_el1");
  unsigned long id = 0;
  stream >> std::hex >> id;
  // Arm Architecture Reference Manual: implementer in bits 31 to 24, 0x41 for Arm, and part number in 15 to 4.
  const auto part = id >> 24 == 0x41 ? parts.find(id >> 4 & 0xfff) : parts.end();
  return part == parts.end() ? "" : part->second;
}

}  // namespace

const std::set<std::string>& processor_flags() {
  static const std::set<std::string> flags = [] {
    std::set<std::string> words;
    std::ifstream stream("/proc/cpuinfo");
    for (std::string line; words.empty() && std::getline(stream, line);) {
      std::istringstream text(line);
      // That the key itself is among them does no harm.  An emulator may show the file of another kind of machine.
      const char* const key = this_machine() == "x86_64" ? "flags" : "Features";
      if (line.rfind(key, 0) == 0) words.insert(std::istream_iterator<std::string>(text), {});
    }
    return words;
  }();
  return flags;
}

std::string misfit(const std::string& machine, const std::vector<std::string>& features) {
  if (!machine.empty() && machine != this_machine()) {
    return "is built for " + quote(machine) + ", but this machine is " + this_machine();
  }
  for (const std::string& feature : features) {
    // A system that lists nothing may have everything.
    if (processor_flags().empty() || processor_flags().count(feature) > 0) continue;
    return "uses " + quote(feature) + ", which this processor does not have";
  }
  return "";
}

std::string processor_of(const std::vector<int64_t>& cores, const std::map<int64_t, std::string>& planned) {
  std::set<std::string> names;
  for (const int64_t core : cores) {
    const std::string name = arm_core(core);
    const auto plan = planned.find(core);
    names.insert(name.empty() && plan != planned.end() ? plan->second : name);
  }
  return names.size() == 1 ? *names.begin() : "";
}

std::vector<int64_t> usable_cores(const std::vector<int64_t>& cores) {
  CpuSet allowed;
  if (sched_getaffinity(0, sizeof allowed, allowed.sets) != 0) return {};
  std::set<int64_t> usable;
  for (const int64_t core : cores) {
    if (CPU_ISSET_S(static_cast<size_t>(core), sizeof allowed, allowed.sets)) usable.insert(core);
  }
  return {usable.begin(), usable.end()};
}

void pin(const std::vector<int64_t>& cores) {
  CpuSet wanted;
  for (const int64_t core : cores) CPU_SET_S(static_cast<size_t>(core), sizeof wanted, wanted.sets);
  // Slower, but right without it; so a system that forbids it is no error.
  if (!cores.empty()) static_cast<void>(sched_setaffinity(0, sizeof wanted, wanted.sets));
}

void flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" ::"r"(control | 1 << 24));
#endif
}

}  // namespace soc
