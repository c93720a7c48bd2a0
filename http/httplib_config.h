// cpp-httplib 0.18 as kitty uses it. Its Server parses, routes and answers a request from memory
// (process_request(), in http/routes); what parses an answer for the client is in httplib::detail. Every
// socket is kitty's own, because httplib knows no deadline for a whole request.
#pragma once

// Without poll() httplib's own loops would stop at descriptor 1024.
#define CPPHTTPLIB_USE_POLL
// g++ 12 sees uninitialised members in its own <regex> when it compiles with sanitizers; it says so at the
// point of instantiation, which is the end of the file that includes this.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// httplib.h includes <iostream> and uses nothing of it, but with g++ 12 the mere inclusion keeps the eight
// standard streams in the binary (ios_base::Init; from g++ 13 on the library has it): 16 kB. This is
// libstdc++'s include guard; were the name another, only the size would suffer.
#define _GLIBCXX_IOSTREAM 1  // NOLINT(bugprone-reserved-identifier)
#include <httplib.h>
