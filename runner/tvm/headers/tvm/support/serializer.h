// All of it is in io.h.
#pragma once

#include <tvm/support/io.h>
