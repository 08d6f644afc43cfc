// Processor: which machine this is, and which of its cores and instructions may be used.
#pragma once

#include <string>
#include <vector>

namespace soc {

// Why code for a machine with these extensions cannot run here; empty if it can.
std::string misfit(const std::string& machine, const std::vector<std::string>& features);

// Those of some cores that this process may use.
std::vector<int> usable_cores(const std::vector<int>& cores);

// Keeps the calling thread on some cores; does nothing for none.
void pin(const std::vector<int>& cores);

}  // namespace soc
