// Descriptors 0 to 2 of a program that was started without them. What is opened next would become one, and
// the log would be written into a client's connection or a map. To be called first of all, before there are
// threads.
#pragma once

#include "base/error.h"

namespace kitty {

// Puts /dev/null in the place of each that is closed; where there is none, something that can be neither read
// nor written.
[[nodiscard]] Status open_standard_streams();

}  // namespace kitty
