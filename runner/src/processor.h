// Processor: which machine this is, and which of its cores and instructions may be used.
#pragma once

#include "failure.h"

namespace soc {

// Extensions that the processor has, as Linux calls them; none if it does not say.
const std::set<std::string>& processor_flags();

// Why code for a machine with these extensions cannot run here; empty if it can.
std::string misfit(const std::string& machine, const std::vector<std::string>& features);

// LLVM's name of the processor that all these cores are, from Linux or else from the plan; empty if they are unlike.
std::string processor_of(const std::vector<int64_t>& cores, const std::map<int64_t, std::string>& planned);

// Those of some cores that this process may use.
std::vector<int64_t> usable_cores(const std::vector<int64_t>& cores);

// Keeps the calling thread on some cores; does nothing for none.
void pin(const std::vector<int64_t>& cores);

// Lets the calling thread, and those it starts, take denormals for zeros, as pipeline/system/denormals.py does.
void flush_denormals();

}  // namespace soc
